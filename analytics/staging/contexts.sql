-- One row per prompt prefix: definition and demonstrations.
select * from read_parquet(getvariable('run_dir') || '/contexts/part-*.parquet')
