-- One row: the facts of the run's spec that the metrics need (model, seed, normalization, eos, predict,
-- calibration), and the model's n_parameters, null where the run's environment does not say.
select * from read_parquet(getvariable('run_dir') || '/run_settings/part-*.parquet')
