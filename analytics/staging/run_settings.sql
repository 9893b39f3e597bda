-- One row: the facts of the run's spec that the metrics need (model, seed, normalization, eos, predict,
-- calibration).
select * from read_parquet(getvariable('run_dir') || '/run_settings/part-*.parquet')
