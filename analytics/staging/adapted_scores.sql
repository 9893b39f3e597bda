-- One row per (prompt, label): label_scores of the model with adapters, each prompt with that of its context.
select * from read_parquet(getvariable('run_dir') || '/adapted_scores/part-*.parquet')
