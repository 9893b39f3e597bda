-- t_quantile(df): the 97.5 % quantile of Student's t; beyond 9 degrees of freedom by its expansion in 1 / df, whose
-- error is below 1e-5 (Abramowitz & Stegun 1964, 26.7.5). Null below 1.
create macro t_quantile(df) as
    case
        when df < 1 then null
        when df < 10 then ([12.706205, 4.302653, 3.182446, 2.776445, 2.570582, 2.446912, 2.364624, 2.306004, 2.262157])[
            floor(df)::bigint
        ]
        else 1.959963984540054 + 2.37227123 / df + 2.82249862 / df ** 2 + 2.55584968 / df ** 3 + 1.58953405 / df ** 4
    end
