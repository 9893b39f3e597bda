-- as_rate(value): as sentences write it, with three decimals.
create macro as_rate(value) as
    coalesce(replace(format('{:.3f}', round(value, 3) + 0.0), '-', '−'), '–')
