-- One row per (trial, objective, scope): its value, and its difference from the chosen trial. value: on the data that
-- the choice is made on; evaluation: on the other half, null with choose_on published. Intervals are 95 %, by leaving
-- out each of up to ten groups of articles or rows in turn. difference: value minus that of the chosen trial, on the
-- same data, and evaluation_difference on the other half, which the choice did not see. is_within_noise: the interval
-- of difference holds 0, so that nothing tells the two apart; null where there is none. evaluation_difference_p: that
-- evaluation_difference is 0, by Student's t with the error of the jackknife; of the chosen trial itself, and where
-- nothing varies, none. evaluation_difference_p_adjusted: over all of these of the search together (holm). verdict:
-- 'higher' or 'lower' than the chosen trial where that is at most 5 %, else 'unclear'. On the data of the choice there
-- is no test: the chosen trial is chosen for being ahead there. Nor is there one of bias_score: sampling noise alone
-- makes it greater than 0. is_above_constant: the settings that the value is computed of are better than the best
-- answer that is always the same, on data that the choice did not see, where there are any: true where that is shown of
-- all of them, false where none is better, else null. Of trials that were stopped or failed, or that lack the objective
-- in the scope, all of this is null.
with
chosen as (
    select objective, scope, sample, value, left_out_values
    from search_values
    inner join search_chosen using (trial, scope)
    where is_chosen
),

compared as (
    select
        search_values.trial, objective, scope, sample, search_values.value, search_values.error, search_values.quantile,
        search_values.value - chosen.value as difference,
        jackknife_error(
            list_transform(
                list_zip(search_values.left_out_values, chosen.left_out_values),
                lambda pair: pair[1] - pair[2]
            )
        ) as difference_error,
        len(search_values.left_out_values) - 1 as df, search_values.is_above_constant
    from search_values
    left join chosen using (objective, scope, sample)
),

tests as (
    select
        true as family,
        {'trial': trial, 'objective': objective, 'scope': scope} as test,
        case
            when difference_error > 1e-12 then student_p(difference / difference_error, df)
            when abs(difference) <= 1e-12 then 1
        end as p
    from compared
    inner join search_objectives using (objective)
    anti join (select trial, scope from search_chosen where is_chosen) as chosen_trials using (trial, scope)
    where sample = 'evaluation' and difference is not null and not is_of_bias_score
)

select
    trials.trial, search_objectives.objective, scopes.scope, trials.parameters, trials.state, on_choice.value,
    on_choice.value - on_choice.quantile * on_choice.error as value_low,
    on_choice.value + on_choice.quantile * on_choice.error as value_high,
    on_evaluation.value as evaluation,
    on_evaluation.value - on_evaluation.quantile * on_evaluation.error as evaluation_low,
    on_evaluation.value + on_evaluation.quantile * on_evaluation.error as evaluation_high,
    on_choice.difference,
    on_choice.difference - on_choice.quantile * on_choice.difference_error as difference_low,
    on_choice.difference + on_choice.quantile * on_choice.difference_error as difference_high,
    on_evaluation.difference as evaluation_difference,
    on_evaluation.difference - on_evaluation.quantile * on_evaluation.difference_error as evaluation_difference_low,
    on_evaluation.difference + on_evaluation.quantile * on_evaluation.difference_error as evaluation_difference_high,
    abs(on_choice.difference) <= on_choice.quantile * on_choice.difference_error + 1e-12 as is_within_noise,
    coalesce(search_chosen.is_chosen, false) as is_chosen, trials.steps, trials.problem,
    judged.p as evaluation_difference_p, judged.p_adjusted as evaluation_difference_p_adjusted,
    case
        when judged.p_adjusted is null then null
        when judged.p_adjusted <= 0.05 and on_evaluation.difference > 0 then 'higher'
        when judged.p_adjusted <= 0.05 and on_evaluation.difference < 0 then 'lower'
        else 'unclear'
    end as verdict,
    if(search_settings.choose_on = 'published', on_choice.is_above_constant, on_evaluation.is_above_constant)
        as is_above_constant
from trials
cross join search_objectives
cross join (select distinct scope from search_values) as scopes
cross join search_settings
left join (from compared where sample = 'choice') as on_choice using (trial, objective, scope)
left join (from compared where sample = 'evaluation') as on_evaluation using (trial, objective, scope)
left join search_chosen using (trial, scope)
left join (select unnest(test), p, p_adjusted from tests inner join holm('tests') using (family, test)) as judged
    using (trial, objective, scope)
order by scopes.scope, trials.trial
