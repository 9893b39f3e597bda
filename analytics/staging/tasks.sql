-- One row per task of the run, with its label set in code-point order.
select * from read_parquet(getvariable('run_dir') || '/tasks/part-*.parquet')
