-- verdict(estimate, p_adjusted, low, high, n_units, least_effect): the word that a paired difference supports, of a
-- test of sign_flip_tests with its simultaneous band: 'too few' below 6 units, of which no two-sided test can reach 5
-- %; 'higher' or 'lower' where p_adjusted is at most 5 % and the difference at least the smallest effect of interest;
-- 'negligible' where the band lies within that, and, where no unit differs, where up to 3 / n_units of them may (rule
-- of three, Hanley & Lippman-Hand 1983); else 'unclear', also of a difference that is significant and may be either.
-- Null without an estimate.
create macro verdict(estimate, p_adjusted, low, high, n_units, least_effect) as
    case
        when estimate is null then null
        when n_units < 6 then 'too few'
        when p_adjusted <= 0.05 and estimate >= least_effect then 'higher'
        when p_adjusted <= 0.05 and estimate <= -least_effect then 'lower'
        when low > -least_effect and high < least_effect and (high - low > 1e-12 or 3 / n_units < least_effect)
            then 'negligible'
        else 'unclear'
    end
