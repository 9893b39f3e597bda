-- One row per (adapter, optimizer step): loss (nats), gradient norm before clipping, learning rate, seconds.
select * from read_parquet(getvariable('run_dir') || '/training/part-*.parquet')
