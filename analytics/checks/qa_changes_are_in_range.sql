-- Rows here: a metric of trained readers outside its range, or null where it can be computed; a change that is not the
-- difference of what it is a change of; a draw of an unknown comparison, twice, or out of range.
with

draws_out_of_range as (

    select
        format('{}, {}, {}, draw {}: {}', model, dataset, heuristic, coalesce(draw::varchar, 'null'), {
            'n_times': count(*),
            'lower': any_value(lower),
            'higher': any_value(higher),
            'standard_lower': any_value(standard_lower),
            'standard_higher': any_value(standard_higher)
        }::varchar) as problem
    from qa_change_draws
    group by model, dataset, heuristic, draw
    having
        count(*) > 1
        or not coalesce(draw >= 0, false)
        or not bool_and(coalesce(lower between 0 and 1, true))
        or not bool_and(coalesce(higher between 0 and 1, true))
        or not bool_and(coalesce(standard_lower between 0 and 1, true))
        or not bool_and(coalesce(standard_higher between 0 and 1, true))

),

draws_of_nothing as (

    select distinct
        format('{}, {}, {}: draws of a comparison that there is not', model, dataset, heuristic) as problem
    from qa_change_draws
    anti join (select * from qa_debiasing where method <> 'standard') as compared using (model, dataset, heuristic)

),

biases_out_of_range as (

    select
        format('{}, {}, {}: {}', model, dataset, heuristic, {
            'status': status,
            'bias_significance': bias_significance,
            'standard_significance': standard_significance,
            'significance_change': significance_change,
            'significance_change_low': significance_change_low,
            'significance_change_high': significance_change_high,
            'worse_high': worse_high,
            'worse_high_change': worse_high_change,
            'gap': gap,
            'standard_gap': standard_gap,
            'gap_change': gap_change,
            'gap_change_low': gap_change_low,
            'gap_change_high': gap_change_high,
            'exact_match': exact_match,
            'standard_exact_match': standard_exact_match,
            'n_rows': n_rows,
            'n_articles': n_articles,
            'n_draws': n_draws
        }::varchar) as problem
    from qa_debiasing
    where
        not coalesce(bias_significance between 0 and 100, status in ('groups too small', 'no threshold to try'))
        or not coalesce(standard_significance between 0 and 100, true)
        or not coalesce(
            abs(significance_change - (bias_significance - standard_significance)) <= 1e-9,
            bias_significance is null or standard_significance is null
        )
        or (significance_change_low is null) <> (significance_change_high is null)
        or not coalesce(
            -100 <= significance_change_low
            and significance_change_low <= significance_change_high
            and significance_change_high <= 100,
            gap_change_low is null
        )
        or not coalesce(worse_high between 0 and 100, status <> 'measured')
        or not coalesce(abs(worse_high_change) <= 100, true)
        or not coalesce(gap between -100 and 100, true)
        or not coalesce(standard_gap between 0 and 100, true)
        or not coalesce(abs(gap_change - (gap - standard_gap)) <= 1e-6, gap is null or standard_gap is null)
        or not coalesce(
            gap_change_low - 1e-9 <= gap_change and gap_change <= gap_change_high + 1e-9, gap_change_low is null
        )
        or not coalesce(exact_match between 0 and 100, false)
        or not coalesce(standard_exact_match between 0 and 100, true)
        or not coalesce(n_articles between 0 and n_rows, false)
        or (gap_change_low is not null and not coalesce(n_draws > 0, false))

),

outcomes_out_of_range as (

    select
        format('{}, {}: {}', model, dataset, {
            'f1': f1,
            'standard_f1': standard_f1,
            'f1_change': f1_change,
            'f1_change_low': f1_change_low,
            'f1_change_high': f1_change_high,
            'exact_match': exact_match,
            'standard_exact_match': standard_exact_match,
            'exact_match_change': exact_match_change,
            'exact_match_change_low': exact_match_change_low,
            'exact_match_change_high': exact_match_change_high,
            'n_rows': n_rows,
            'n_articles': n_articles
        }::varchar) as problem
    from qa_out_of_distribution
    where
        not coalesce(f1 between 0 and 1, false)
        or not coalesce(exact_match between 0 and 1, false)
        or not coalesce(abs(f1_change - (f1 - standard_f1)) <= 1e-9, standard_f1 is null)
        or not coalesce(
            abs(exact_match_change - (exact_match - standard_exact_match)) <= 1e-9, standard_exact_match is null
        )
        or not coalesce(
            f1_change_low - 1e-9 <= f1_change and f1_change <= f1_change_high + 1e-9,
            standard_f1 is null or n_articles = 1
        )
        or not coalesce(
            exact_match_change_low - 1e-9 <= exact_match_change
            and exact_match_change <= exact_match_change_high + 1e-9,
            standard_exact_match is null or n_articles = 1
        )
        or not coalesce(n_articles between 1 and n_rows, false)

),

bias_models_out_of_range as (

    select
        format('{}, {}: {}', model, dataset, {
            'f1_biased': f1_biased,
            'f1_other': f1_other,
            'exact_match_biased': exact_match_biased,
            'exact_match_other': exact_match_other,
            'n_biased': n_biased,
            'n_other': n_other
        }::varchar) as problem
    from qa_bias_models
    where
        not coalesce(f1_biased between 0 and 1, true)
        or not coalesce(f1_other between 0 and 1, true)
        or coalesce(f1_biased, f1_other) is null
        or (f1_biased is null) <> (exact_match_biased is null)
        or (f1_other is null) <> (exact_match_other is null)
        or not coalesce(exact_match_biased between 0 and 1, true)
        or not coalesce(exact_match_other between 0 and 1, true)
        or not coalesce(n_biased > 0 and n_other > 0, false)

),

correlations_out_of_range as (

    select
        format('{}, {}, {}: {}', dataset, method, other_dataset, {
            'n_models': n_models,
            'pearson': pearson,
            'pearson_low': pearson_low,
            'pearson_high': pearson_high,
            'spearman': spearman
        }::varchar) as problem
    from qa_debiasing_correlation
    where
        not coalesce(pearson between -1 and 1, true)
        or not coalesce(spearman between -1 and 1, true)
        or (pearson is null) <> (spearman is null)
        or not coalesce(
            -1 <= pearson_low
            and pearson_low <= pearson + 1e-9
            and pearson <= pearson_high + 1e-9
            and pearson_high <= 1,
            pearson is null or n_models < 4
        )
        or not coalesce(n_models >= 0, false)

),

averages_out_of_range as (

    select
        format('{}@{}, {}, seed {}, {}: {}', base, data, method, seed, dataset, {
            'bias_significance': bias_significance,
            'standard_significance': standard_significance,
            'significance_change': significance_change,
            'worse_high': worse_high,
            'standard_worse_high': standard_worse_high,
            'n_heuristics': n_heuristics,
            'n_nearly_broken': n_nearly_broken
        }::varchar) as problem
    from qa_debiasing_by_method
    where
        not coalesce(bias_significance between 0 and 100, false)
        or not coalesce(standard_significance between 0 and 100, false)
        or not coalesce(abs(significance_change - (bias_significance - standard_significance)) <= 1e-9, false)
        or (worse_high is null) <> (standard_worse_high is null)
        or not coalesce(worse_high between 0 and 100, true)
        or not coalesce(standard_worse_high between 0 and 100, true)
        or not coalesce(n_heuristics > 0 and n_nearly_broken between 0 and n_heuristics, false)

    union all

    select
        format('{}, mean of sets: {}', model, {
            'f1': f1,
            'standard_f1': standard_f1,
            'f1_change': f1_change,
            'f1_change_low': f1_change_low,
            'f1_change_high': f1_change_high,
            'exact_match': exact_match,
            'standard_exact_match': standard_exact_match,
            'exact_match_change': exact_match_change,
            'exact_match_change_low': exact_match_change_low,
            'exact_match_change_high': exact_match_change_high,
            'n_datasets': n_datasets,
            'n_rows': n_rows
        }::varchar) as problem
    from qa_out_of_distribution_by_model
    where
        not coalesce(f1 between 0 and 1, false)
        or not coalesce(exact_match between 0 and 1, false)
        or (f1_change is null) <> (standard_f1 is null)
        or (exact_match_change is null) <> (standard_exact_match is null)
        or (f1_change_low is null) <> (exact_match_change_low is null)
        or not coalesce(abs(f1_change) <= 1 and abs(exact_match_change) <= 1, standard_f1 is null)
        or not coalesce(f1_change_low <= f1_change and f1_change <= f1_change_high, f1_change_low is null)
        or not coalesce(
            exact_match_change_low <= exact_match_change and exact_match_change <= exact_match_change_high,
            f1_change_low is null
        )
        or not coalesce(n_rows >= n_datasets and n_datasets > 0, false)

    union all

    select
        format('{}@{}, {}, seed {}, {}: {}', base, data, method, seed, dataset, {
            'f1_change': f1_change,
            'exact_match_change': exact_match_change,
            'n_biases': n_biases
        }::varchar) as problem
    from qa_out_of_distribution_by_method
    where
        not coalesce(abs(f1_change) <= 1 and abs(exact_match_change) <= 1, n_biases = 0)
        or not coalesce(n_biases >= 0, false)

),

curves_out_of_range as (

    select
        format('{}@{}, {}, {}, step {}: {}', base, data, method, dataset, step, {
            'loss': loss,
            'loss_low': loss_low,
            'loss_high': loss_high,
            'exact_match': exact_match,
            'exact_match_low': exact_match_low,
            'exact_match_high': exact_match_high,
            'f1': f1,
            'f1_low': f1_low,
            'f1_high': f1_high,
            'n_readers': n_readers
        }::varchar) as problem
    from qa_training_curves
    where
        not coalesce(
            0 <= loss_low and loss_low <= loss * (1 + 1e-9) and loss <= loss_high * (1 + 1e-9), false
        )
        or not coalesce(
            0 <= exact_match_low
            and exact_match_low <= exact_match + 1e-9
            and exact_match <= exact_match_high + 1e-9
            and exact_match_high <= 1,
            false
        )
        or not coalesce(0 <= f1_low and f1_low <= f1 + 1e-9 and f1 <= f1_high + 1e-9 and f1_high <= 1, false)
        or not coalesce(n_readers > 0, false)

),

costs_out_of_range as (

    select
        format('{}: {}', model, {
            'steps': steps,
            'seconds': seconds,
            'accelerator_hours': accelerator_hours,
            'n_evaluations': n_evaluations,
            'evaluation_seconds': evaluation_seconds
        }::varchar) as problem
    from qa_training_costs
    where
        not coalesce(seconds >= 0, seconds is null)
        or not coalesce(evaluation_seconds >= 0, evaluation_seconds is null)
        or not coalesce(accelerator_hours >= 0, accelerator_hours is null)
        or (problem is null and not coalesce(seconds > 0 and n_evaluations > 0 and steps > 0, false))

)

select * from draws_out_of_range
union all
select * from draws_of_nothing
union all
select * from biases_out_of_range
union all
select * from outcomes_out_of_range
union all
select * from bias_models_out_of_range
union all
select * from correlations_out_of_range
union all
select * from averages_out_of_range
union all
select * from curves_out_of_range
union all
select * from costs_out_of_range
order by all
