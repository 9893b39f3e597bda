-- above_constant(is_above, is_less_accurate): in words, whether answers are better than one that is always the same.
create macro above_constant(is_above, is_less_accurate) as
    case
        when is_above and is_less_accurate then 'in macro-F1 alone'
        when is_above then 'yes'
        when not is_above then 'no'
        else 'not shown'
    end
