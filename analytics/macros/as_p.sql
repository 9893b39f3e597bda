-- as_p(p): a p-value as sentences write it.
create macro as_p(p) as
    case when p is null then 'no test' when p < 0.001 then 'p < 0.001' else format('p = {:.3f}', p) end
