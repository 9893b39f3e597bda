-- One row per (model, question): the answer, and its exact match and F1 (0 to 1).
select * from read_parquet(getvariable('run_dir') || '/qa_predictions/part-*.parquet')
