-- as_number(value, low, high): a number of any size as sentences write it, with four digits, and with its interval
-- unless an end is null.
create macro as_number(value, low := null, high := null) as
    coalesce(replace(format('{:.4g}', if(abs(value) < 1e-12, 0, value)::double), '-', '−'), '–')
    || coalesce(replace(format(
        ' [{:.4g}, {:.4g}]', if(abs(low) < 1e-12, 0, low)::double, if(abs(high) < 1e-12, 0, high)::double
    ), '-', '−'), '')
