-- One row per question of a QA-bias run, with its answers.
select * from read_parquet(getvariable('run_dir') || '/qa_examples/part-*.parquet')
