-- One row per sentence on how other_run (who) differs from run (against): line, its place; lead, its first words; text.
-- Words of judgement are those of qa_bias_compared (compare_conclusions).
from compare_conclusions('qa_bias_compared', 'qa_bias_conclusions')
