-- One row per (suite, draw, task): how often the draw holds the task; draw 0 is the suite itself, each task once.
select * from read_parquet(getvariable('run_dir') || '/bootstrap_draws/part-*.parquet')
