-- One row per sentence on how other_run (who) differs from run (against): line, its place; lead, its first words; text.
-- Words of judgement are those of majority_bias_compared (compare_conclusions).
from compare_conclusions('majority_bias_compared', 'majority_bias_conclusions')
