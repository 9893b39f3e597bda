-- One row per (prompt, mode): generations of the model with adapters, each prompt with that of its context.
select * from read_parquet(getvariable('run_dir') || '/adapted_generations/part-*.parquet')
