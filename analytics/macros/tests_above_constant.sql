-- from tests_above_constant('differences'): whether settings are better than the best answer that is always the same.
-- differences: a relation with family and place (of any type, a setting), metric, and of the differences of its rows
-- from that constant answer, each weighted so that they add up to the difference of the metric: difference, their sum;
-- square, the sum of their squares; largest, of their absolute values. One row per place: constant_p: that no metric of
-- the setting exceeds that of the constant answer, one-sided and adjusted for all settings and metrics of the family
-- together (holm). A metric whose difference is null has no test; with none, constant_p is 1. The test is a sign test:
-- if the setting were no better, each row's difference would be as likely above 0 as below it. Its normal deviate is
-- corrected by the largest difference, as a step of a binomial count is (of accuracy in one demonstration set it is
-- McNemar's test with Edwards' correction), so that few rows cannot decide. A difference up to 1e-9 is the rounding of
-- a zero by the order of summation.
create macro tests_above_constant(differences) as table
with
tests as (
    select
        family, {'place': place, 'metric': metric} as test,
        case
            when difference > largest + 1e-9 and square > 0 then normal_p((difference - largest) / sqrt(square)) / 2
            when difference is not null then 1
        end as p
    from query_table(differences)
)

select test.place as place, coalesce(min(p_adjusted), 1) as constant_p
from holm('tests')
group by test.place
