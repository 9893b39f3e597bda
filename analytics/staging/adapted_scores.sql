-- label_scores of the model with adapters: each prompt with the adapter of its context.
select * from read_parquet(getvariable('run_dir') || '/adapted_scores/part-*.parquet')
