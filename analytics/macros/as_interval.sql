-- as_interval(low, high): an interval in brackets behind a number, as sentences write it; empty where it has no ends.
create macro as_interval(low, high) as
    if(low is null or high is null, '', format(' [{}, {}]', as_rate(low), as_rate(high)))
