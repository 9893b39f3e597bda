-- as_number(value, low, high): a number as sentences write it (as_digits), with its interval unless an end is null.
create macro as_number(value, low := null, high := null) as
    coalesce(as_digits(value), '–') || coalesce(format(' [{}, {}]', as_digits(low), as_digits(high)), '')
