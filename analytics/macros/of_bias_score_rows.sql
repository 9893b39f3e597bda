-- of_bias_score_rows(metric): whether it is of the rows of BiasScore instead of the main rows.
create macro of_bias_score_rows(metric) as coalesce(metric_head(metric).of_rows = 'bias_score', false)
