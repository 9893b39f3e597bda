-- t_quantile(df): the 97.5 % quantile of Student's t with 1 to 9 degrees of freedom, for intervals over at most 10 groups.
create macro t_quantile(df) as
    ([12.706205, 4.302653, 3.182446, 2.776445, 2.570582, 2.446912, 2.364624, 2.306004, 2.262157])[df]
