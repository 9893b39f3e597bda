-- One row per (trained adapter, step): loss, gradient norm, learning rate and seconds.
select * from read_parquet(getvariable('run_dir') || '/training/part-*.parquet')
