-- normal_p(z): the two-sided p-value of a standard normal z: erfc(|z| / sqrt(2)), with a relative error below 1.2e-7
-- (the Chebyshev fit of Press et al. 1992, Numerical Recipes, section 6.2). Null of null.
create macro normal_p(z) as
    list_transform(
        [abs(z::double) / sqrt(2)],
        lambda x: case
            -- The least of 1 and null would be 1.
            when x is not null then list_transform(
                [1 / (1 + 0.5 * x)],
                lambda t: least(1, t * exp(
                    -x * x - 1.26551223 + t * (1.00002368 + t * (0.37409196 + t * (0.09678418 + t * (-0.18628806
                    + t * (0.27886807 + t * (-1.13520398 + t * (1.48851587 + t * (-0.82215223 + t * 0.17087277))))))))
                ))
            )[1]
        end
    )[1]
