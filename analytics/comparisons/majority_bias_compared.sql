-- One row per row of majority_bias_comparison, with words for it, as in label_bias_compared. deployed, is_headline: of
-- the settings that a user would deploy: without mitigation, with the instruction, way of predicting and number of
-- demonstrations that have the highest mean weighted F1 of both together, and the best setting of each (majority_best).
with
compared as (
    select *, {'n_demos': n_demos, 'instruction': instruction, 'predict': predict, 'method': method} as setting
    from majority_bias_comparison
),

best as (
    select
        run, {'n_demos': n_demos, 'instruction': instruction, 'predict': predict, 'method': method} as best,
        shown_majority_setting(predict, method, n_demos, instruction) as best_shown
    from majority_best
),

measured as (
    select
        compared.* exclude (setting), compared.other_run as who, compared.run as against, counted(shared.n_rows, 'test row') as scope,
        'new test rows and other draws of the demonstrations' as holds_for,
        if(
            compared.method = 'best', format('{} for {}; {} for {}', other.best_shown, who, own.best_shown, against),
            shown_majority_setting(compared.predict, compared.method, compared.n_demos, compared.instruction)
        ) as place,
        dense_rank() over (order by compared.n_demos nulls first, predict <> 'likelihood', predict <> 'generate', method <> 'none', method, instruction) as place_number,
        method <> 'none' as is_mitigated, deployed, coalesce(is_headline, false) as is_headline,
        case metric
            when 'mean_f1' then 'mean weighted F1'
            when 'sd_f1' then 'standard deviation over settings'
            when 'rb_at_10' then 'RB@10'
            when 'tails_f1' then 'weighted F1 at the tails'
            when 'middle_f1' then 'weighted F1 in the middle'
            else metric
        end as shown,
        list_position(['accuracy', 'mean_f1', 'sd_f1', 'rb_at_10', 'tails_f1', 'middle_f1'], metric) as number,
        if(metric in ('sd_f1', 'rb_at_10'), 'bias', 'performance') as measures,
        metric not in ('tails_f1', 'middle_f1') as is_first,
        metric = 'sd_f1' as is_low_better, n_predictions, n_differing
    from compared
    left join best as own using (run)
    left join best as other on compared.other_run = other.run
    left join deployed_settings('compared', 'best', 'mean_f1') using (run, other_run, setting)
    left join majority_bias_agreement using (run, other_run, n_demos, instruction, predict, method)
    inner join majority_bias_shared as shared on compared.run = shared.run and compared.other_run = shared.other_run
)

from compared_words('measured')
order by all
