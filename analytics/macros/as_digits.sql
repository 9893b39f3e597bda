-- as_digits(value): a number with three digits; whole numbers and those from 1,000 on have all before the point.
create macro as_digits(value) as
    replace(format(if(abs(value) >= 1000 or abs(value - round(value)) < 1e-12, '{:,.0f}', '{:.3g}'), if(abs(value) < 1e-12, 0, value)::double), '-', '−')
