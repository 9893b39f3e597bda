-- One row per (model, dataset, heuristic, threshold, segment, trial): exact match and F1 (0 to 1) of a sample.
select * from read_parquet(getvariable('run_dir') || '/qa_draws/part-*.parquet')
