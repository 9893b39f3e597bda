-- One row per prompt prefix: definition or instruction, and demonstrations.
select * from read_parquet(getvariable('run_dir') || '/contexts/part-*.parquet')
