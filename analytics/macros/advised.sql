-- advised(advice, is_only_macro_above, method): an advice of label_bias_remedies in a word or two; of method none it is
-- of more demonstrations. is_only_macro_above: accuracy is below that of always answering one label, and macro-F1 is above.
create macro advised(advice, is_only_macro_above, method := '') as
    if(method = 'none', 'more demonstrations: ', '') || case
        when advice in ('bias falls, accuracy rises', 'bias falls, no loss')
            then if(is_only_macro_above, 'helps, not enough', 'helps')
        when advice = 'bias falls, loss not ruled out' then if(is_only_macro_above, 'helps, not enough', 'less bias, accuracy unclear')
        when advice = 'bias falls, accuracy falls' then 'at a price'
        when advice in ('mixed', 'bias rises') then 'mixed'
        when advice like 'bias falls, n% a constant answer' then 'helps, not enough'
        when advice = 'not shown' then 'no change shown'
        when advice like 'do not use%' then 'do not use'
    end
