-- t_reach(error, n_units): how far a 95 % interval reaches to either side, of a mean with a bootstrap_error over
-- resamples of n_units units: t_{n - 1} * sqrt(n / (n - 1)) errors. The middle 95 % of the resamples themselves is too
-- narrow for few units (Hesterberg 2015; simulated, it covers 86 % with 6 units). Null with one unit.
create macro t_reach(error, n_units) as
    t_quantile(n_units - 1) * sqrt(n_units / (n_units - 1)) * error
