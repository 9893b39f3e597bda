-- as_change(value): a difference as sentences write it, with its sign and three decimals.
create macro as_change(value) as
    if(round(value, 3) > 0, '+', '') || as_rate(value)
