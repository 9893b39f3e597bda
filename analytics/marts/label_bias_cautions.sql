-- One row per caution about the numbers of a label-bias run: line, its place; lead,
-- empty; text. What its plan notes, and a primary question that was changed later, stand in its files (report.html).
with
plain as (
    from label_bias_by_model
    where suite = 'all' and method = 'none'
),

run as (
    select max(n_tasks) as n_tasks
    from plain
),

last as (
    from label_bias_by_task_over_sets
    where method = 'none' and n_demos = (select max(n_demos) from plain)
),

-- Names that a sentence lists: five, and how many more.
found as (
    select 20 as line, task || ' (' || as_rate(bias_score_of_perfect) || ')' as name, -bias_score_of_perfect as place
    from last
    where bias_score_of_perfect > 0.1
    union all
    select 21, task, 0
    from last
    where n_main_gold_labels = 1
    union all
    select
        22,
        format('{} ({}, {})', counted(n_tasks_without_hit, 'task'), shown_method(method), with_demos(n_demos)),
        n_demos
    from label_bias_by_model
    where suite = 'all' and n_tasks_without_hit > 0
    union all
    select distinct 23, format('{} ({}, set {})', task, with_demos(n_demos), demo_set), n_demos
    from demonstration_labels
    where is_single_label and n_demos_used > 1
    union all
    select 24, format('{} ({}: {})', task, with_demos(n_demos), listed(list(named order by label))), n_demos
    from (
        select task, n_demos, label, format('“{}” in {}', label, min(format)) as named
        from label_bias_format_labels
        where method = 'none' and is_rsd_above
        group by task, n_demos, label
    )
    group by task, n_demos
    having count(*) > 1
),

named as (
    select
        line,
        if(
            count(*) > 5,
            array_to_string(list(name order by place, name)[:5], ', ') || format(' and {:,} more', count(*) - 5),
            listed(list(name order by place, name))
        ) as names
    from found
    group by line
),

sentences as (
    select
        10 as line, format('{} tasks are few: other tasks may behave differently.', n_tasks) as text
    from run
    where n_tasks between 6 and 9
    union all
    select
        11,
        'Intervals over tasks are illustrations and support no verdict: with fewer than 40 tasks they contain the mean RSD '
        || 'and BiasScore in 90 to 98 % of simulated runs instead of 95 %.'
    from run
    where n_tasks between 2 and 39
    union all
    select
        12,
        format(
            'Labels are scored by the {} over their tokens, {} EOS; the published method takes the mean, with EOS.',
            if(normalization = 'where_unequal', 'mean (or sum, where all labels have as many)', normalization),
            if(eos, 'with', 'without')
        )
    from run_settings
    where (normalization, eos) <> ('mean', true)
    union all
    select
        13,
        'Scores are not those of the full text: the shared prefix is cut by characters, as in the published code '
        || '(prompt.prefix_mode: reference), which may change tokens and predictions.'
    from run_settings
    where prefix_mode = 'reference'
    union all
    select
        line,
        format(
            case line
                when 20
                    then 'BiasScore cannot come near 0 where a gold label is missing among its rows; even a model that is '
                    || 'always right has more than 0.1 in {}.'
                when 21 then 'All test rows have the same gold label in {}; RSD is 0 there for every method.'
                when 22 then 'RSD counts as 0 where no answer is correct, which improves the mean RSD: {}.'
                when 23 then 'All demonstrations have the same label in {}; a preference for that label may come from them.'
                when 24 then 'The preferred label changes with the wording: {}.'
            end,
            names
        )
    from named
    union all
    select
        30,
        format(
            '{} contain fewer demonstrations than requested, because they reach the length limit.',
            counted(sum(n_fewer_demos), 'prompt')
        )
    from shortened_prompts
    having sum(n_fewer_demos) > 0
    union all
    select 31, format('{} were truncated on the right to fit the length limit.', counted(sum(n_truncated), 'prompt'))
    from shortened_prompts
    having sum(n_truncated) > 0
    union all
    select
        32,
        format(
            'The domain-context template of {} is inferred from the inputs; the template changes what DC measures.',
            counted(count(*), 'task')
        )
    from tasks
    where template_source = 'inferred'
    having count(*) > 0
    union all
    select 33, loss_caution(sum(n_not_falling), sum(n_adapters))
    from training_by_setting
    where n_steps > 1
    having sum(n_not_falling) > 0
    union all
    select 34, 'LoRA has adapters for some demonstration sets alone; its differences are measured in these sets.'
    where exists (from label_bias_pairs where against_format <> 'base')
    union all
    select 5, left_out_caution(flatten(list(rows_of)))
    from failed_parts
    where is_left_out
    having count(*) > 0
)

select line, '' as lead, text from sentences order by all
