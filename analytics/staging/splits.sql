-- One row per (task, instance) drawn, with its role and position.
select * from read_parquet(getvariable('run_dir') || '/splits/part-*.parquet')
