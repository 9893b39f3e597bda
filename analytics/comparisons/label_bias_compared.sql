-- One row per row of label_bias_comparison, with words for it: how pages call the two sides (who, against), the setting
-- (place) and the metric (shown); scope: the data that both runs have; holds_for: for what verdicts hold. deployed: what a
-- sentence begins with about the settings that a user would deploy: without mitigation, at the number of demonstrations
-- with the highest macro-F1 of both together, and the best setting of each run (label_bias_best). is_headline: the last
-- of these. word: 'better', 'worse', or why it is neither (compared_words). n_predictions, n_differing: of the setting
-- (label_bias_agreement).
with
best as (
    select
        run, {'n_demos': n_demos, 'method': method} as best,
        [shown_method(method), with_demos(n_demos)] as best_shown
    from label_bias_best
),

compared as (
    select *, {'n_demos': n_demos, 'method': method} as setting
    from label_bias_comparison
),

single as (select run, other_run, any_value(task) as task from label_bias_shared_tasks where has_same_rows group by all having count(*) = 1),

measured as (
    select
        compared.* exclude (word_p_adjusted, noise_p, setting), compared.other_run as who, compared.run as against,
        coalesce('task ' || single.task, counted(shared.n_tasks, 'task')) || ' with ' || counted(shared.n_rows, 'row') as scope,
        case
            when compared.unit = 'task' then 'tasks like these'
            when shared.n_tasks = 1 then 'new rows of this task; one task says nothing about others'
            else format('new rows of these {} tasks; fewer than 6 say nothing about other tasks', shared.n_tasks)
        end as holds_for,
        if(
            compared.method = 'best', format(
                if(
                    own.best_shown[2] = other.best_shown[2], '{0} for {2} and {3} for {4}, both {1}',
                    '{0} {1} for {2} and {3} {5} for {4}'
                ),
                other.best_shown[1], other.best_shown[2], who, own.best_shown[1], against, own.best_shown[2]
            ),
            shown_method(compared.method) || ', ' || with_demos(compared.n_demos)
        ) as place,
        dense_rank() over (order by compared.n_demos nulls first, method <> 'none', method) as place_number,
        method <> 'none' as is_mitigated, deployed, coalesce(is_headline, false) as is_headline,
        coalesce(metric_head(metric).shown, metric) as shown,
        coalesce(list_position(['accuracy', 'macro_f1', 'rsd', 'bias_score'], metric), 5) as number,
        case
            when word_metric(metric) <> metric then 'partner'
            when metric in ('accuracy', 'macro_f1') then 'performance'
            else 'bias'
        end as measures,
        metric in ('accuracy', 'macro_f1', 'rsd', 'bias_score') as is_first,
        metric_head(metric).better = 'lower' as is_low_better, null::varchar as reason, n_predictions, n_differing
    from compared
    left join best as own using (run)
    left join best as other on compared.other_run = other.run
    left join deployed_settings('compared', 'best', 'macro_f1') using (run, other_run, setting)
    left join label_bias_agreement using (run, other_run, n_demos, method)
    inner join label_bias_shared as shared on compared.run = shared.run and compared.other_run = shared.other_run
    left join single on compared.run = single.run and compared.other_run = single.other_run
)

from compared_words('measured')
order by all
