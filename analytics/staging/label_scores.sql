-- One row per (prompt, label): the log-probabilities (nats) of the label's tokens, then of EOS.
select * from read_parquet(getvariable('run_dir') || '/label_scores/part-*.parquet')
