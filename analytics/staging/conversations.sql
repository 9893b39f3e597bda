-- One row per conversation that a model is tuned on or that is held out, with its tokens.
select * from read_parquet(getvariable('run_dir') || '/conversations/part-*.parquet')
