-- jackknife_error(list(value with one group left out)): the standard error of a statistic, over groups that are left
-- out in turn: sqrt((k - 1) / k * sum((v - mean)^2)) (Quenouille, Tukey; groups: Kott 2001). Null with fewer than two
-- groups, or where a value is null.
create macro jackknife_error(left_out_values) as
    case
        when len(left_out_values) > 1 and list_count(left_out_values) = len(left_out_values)
            then sqrt((len(left_out_values) - 1) * list_aggregate(left_out_values::double[], 'var_pop'))
    end
