-- One row per draw: how often it holds each test row, in their order; draw 0 is the rows themselves, each once.
select * from read_parquet(getvariable('run_dir') || '/row_draws/part-*.parquet')
