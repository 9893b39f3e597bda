-- One row: the facts of a QA-bias spec that the metrics need (seed, variant, heuristics, trials, sample, replacement).
select * from read_parquet(getvariable('run_dir') || '/qa_settings/part-*.parquet')
