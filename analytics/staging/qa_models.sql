-- One row per model of a QA-bias run: its number in the spec, what happens to questions without a prediction
-- (on_missing), and the datasets that it has predictions for (null: all).
select * from read_parquet(getvariable('run_dir') || '/qa_models/part-*.parquet')
