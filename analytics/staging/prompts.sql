-- One row per scored input; the text scored is the context's text, then input_text.
select * from read_parquet(getvariable('run_dir') || '/prompts/part-*.parquet')
