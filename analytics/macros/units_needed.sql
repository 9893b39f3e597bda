-- units_needed(n_units, smallest_detectable): units like these of which a test alone finds a difference of 0.05 with a
-- power of 80 %, as a rough rule; at least the 6 of which a test can reach 5 %. Null where nothing is detectable.
create macro units_needed(n_units, smallest_detectable) as
    case when smallest_detectable > 0 then greatest(6, ceil(n_units * (smallest_detectable / 0.05) ** 2))::bigint end
