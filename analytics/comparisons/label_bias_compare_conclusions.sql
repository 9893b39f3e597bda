-- One row per sentence on how other_run (who) differs from run (against): line, its place; lead, its first words; text.
-- Words of judgement are those of label_bias_compared (compare_conclusions).
from compare_conclusions('label_bias_compared', 'label_bias_conclusions')
