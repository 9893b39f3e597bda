-- as_number(value): a number of any size as sentences write it, with four digits.
create macro as_number(value) as
    coalesce(replace(format('{:.4g}', if(abs(value) < 1e-12, 0, value)::double), '-', '−'), '–')
