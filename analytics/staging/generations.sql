-- One row per (prompt, mode): what the model wrote, and the label that it is; null where it is none.
select * from read_parquet(getvariable('run_dir') || '/generations/part-*.parquet')
