-- One row: the facts of the run's spec that the metrics need (model, seed, normalization, eos, predict, calibration,
-- adaptations: none, and lora where the run has adapters), and of its environment, null where that does not say: the
-- model's n_parameters, those of an adapter (trained_parameters), and how long actors scored (scoring_seconds).
select * from read_parquet(getvariable('run_dir') || '/run_settings/part-*.parquet')
