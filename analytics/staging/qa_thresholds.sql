-- One row per (dataset, heuristic, threshold) that is tried; is_fixed: given by the spec, the only one of its heuristic.
select * from read_parquet(getvariable('run_dir') || '/qa_thresholds/part-*.parquet')
