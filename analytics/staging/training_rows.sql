-- One row per (adapter, training example): prompt and label, and the tokens of both with EOS.
select * from read_parquet(getvariable('run_dir') || '/training_rows/part-*.parquet')
