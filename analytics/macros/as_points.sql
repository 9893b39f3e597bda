-- as_points(value, low, high): points (0 to 100) as sentences write them, with one decimal, and with their interval
-- unless an end of it is null.
create macro as_points(value, low := null, high := null) as
    coalesce(replace(format('{:.1f}', round(value::double, 1) + 0.0), '-', '−'), '–')
    || coalesce(replace(format(' [{:.1f}, {:.1f}]', round(low::double, 1) + 0.0, round(high::double, 1) + 0.0), '-', '−'), '')
