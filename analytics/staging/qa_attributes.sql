-- One row per (question, heuristic): the attribute's value; -1 where undefined.
select * from read_parquet(getvariable('run_dir') || '/qa_attributes/part-*.parquet')
