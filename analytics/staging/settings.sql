-- One row per setting of a majority-bias run: the shares of the labels among the demonstrations, and their counts.
select * from read_parquet(getvariable('run_dir') || '/settings/part-*.parquet')
