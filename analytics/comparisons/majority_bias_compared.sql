-- One row per row of majority_bias_comparison, with words for it, as in label_bias_compared. deployed, is_headline: of
-- the settings that a user would deploy, without mitigation and with one that majority_remedies supports; each with the
-- instruction, way of predicting and number of demonstrations that have the highest mean weighted F1 of both together.
with
settings as (
    select
        compared.run, other_run, compared.method,
        {
            'n_demos': compared.n_demos, 'instruction': compared.instruction, 'predict': compared.predict,
            'method': compared.method
        } as place,
        (-compared.n_demos, not compared.instruction, compared.predict, compared.method) as tie,
        any_value(value + other_value) filter (metric = 'mean_f1') as score,
        count(distinct supported.run) as n_supported
    from majority_bias_comparison as compared
    left join (select run, n_demos, instruction, predict, method from majority_remedies where is_supported) as supported
        on
            supported.run in (compared.run, other_run) and supported.n_demos = compared.n_demos
            and supported.instruction = compared.instruction and supported.predict = compared.predict
            and supported.method = compared.method
    group by all
),

measured as (
    select
        compared.*, compared.other_run as who, compared.run as against, counted(shared.n_rows, 'test row') as scope,
        'new test rows and other draws of the demonstrations' as holds_for,
        shown_predict(predict) || if(method = 'none', '', ', ' || shown_method(method)) || ', ' || with_demos(compared.n_demos)
        || if(instruction, ', with', ', without') || ' instruction' as place,
        dense_rank() over (
            order by compared.n_demos, predict <> 'likelihood', predict <> 'generate', method <> 'none', method, instruction
        ) as place_number,
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
    from majority_bias_comparison as compared
    left join deployed_settings('settings') using (run, other_run, n_demos, instruction, predict, method)
    left join majority_bias_agreement using (run, other_run, n_demos, instruction, predict, method)
    inner join majority_bias_shared as shared on compared.run = shared.run and compared.other_run = shared.other_run
)

from compared_words('measured')
order by all
