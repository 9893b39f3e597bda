-- One row per caution about the numbers of a QA-bias run: line, its place; lead,
-- empty; text. What its plan notes, and thresholds that an earlier spec searched, stand in its files (report.html).
with
answered as (
    from qa_by_dataset
    inner join qa_shown_models using (model)
),

biases as (
    from qa_bias_by_heuristic
    inner join qa_shown_models using (model)
),

run as (
    from qa_settings
    cross join (select count(*) as n_models from (select distinct model from answered))
),

-- On whose answers thresholds were searched, of which data sets.
sources as (
    select searched_on, list(distinct dataset order by dataset) as datasets
    from biases
    where searched_on is not null and threshold is not null
    group by searched_on
),

searched as (
    select
        count(*) as n,
        listed(list(
            searched_on || if((select count(*) from sources) > 1, format(' ({})', array_to_string(datasets, ', ')), '')
            order by searched_on
        )) as names
    from sources
),

narrow as (
    select dataset, heuristic, min(least(n_lower, n_higher)) as n_rows
    from biases
    where status = 'measured'
    group by all
    having n_rows < 2 * (select sample from run)
),

-- The models of which a shortcut cannot be measured on a set, and whether these are all.
lacking as (
    select
        dataset, heuristic, status, list(model order by place) as models,
        count(*) = (select count(*) from answered as others where others.dataset = biases.dataset) as is_all
    from biases
    where status in ('groups too small', 'no threshold to try')
    group by dataset, heuristic, status
),

unmeasured as (
    select
        dataset, status,
        if(
            count_if(is_all) = (select len(heuristics) from run),
            'every shortcut',
            some_of(list(heuristic || if(is_all, '', format(' (of {})', array_to_string(models, ', '))) order by heuristic), 5)
        ) || ' on ' || dataset as text
    from lacking
    group by dataset, status
),

debiased as (
    from trained_models
    where method not in ('standard', 'bias_model')
),

sentences as (
    select
        10 as line,
        format(
            'Fewer than half of the answers are exact: {}. A model that answers badly everywhere shows little bias, which is '
            || 'no success.',
            some_of(list(format('{} ({} on {})', model, as_percent(exact_match), dataset) order by place, dataset), 3)
        ) as text
    from answered
    where role = 'in_distribution' and exact_match < 0.5
    union all
    select
        11,
        format(
            'All questions of {} are about one article: there are no intervals, and a bias cannot be distinguished from '
            || 'that article''s peculiarities.', names
        )
    from (select listed(list(distinct dataset order by dataset)) as names from answered where n_articles = 1)
    union all
    select
        12,
        case
            when variant = 'reference' then 'Thresholds are searched for each model on its own answers.'
            when n_models = 1 then 'Thresholds are searched on the answers that are measured.'
            else format(
                'Thresholds are searched on the answers of {} and kept for the other models, which may have thresholds that '
                || 'separate their groups further.', names
            )
        end || ' The largest of several bias significances leans high, also where there is no bias.'
    from searched, run
    where n > 0
    union all
    select
        13,
        format(
            'Samples of {:,} without replacement contain much of the smaller group of {}: the bias significance leans high '
            || 'and its range is too narrow. Look at the gap.',
            (select sample from run),
            some_of(list(format('{} on {} ({:,} questions)', heuristic, dataset, n_rows) order by n_rows, heuristic, dataset), 3)
        )
    from narrow
    where not (select replacement from run)
    having count(*) > 0
    union all
    select
        14,
        format(
            '{} has no answer to {:,} of the {:,} questions of {}, which are left out for it alone.', model, n_missing,
            n_rows + n_missing, dataset
        )
    from answered
    where n_missing > 0
    union all
    select
        15,
        format(
            'Not measured, because {}: {}.',
            if(
                status = 'groups too small',
                format('a group has fewer than {:,} questions, the size of a sample', (select sample from run)),
                'the values do not differ'
            ),
            array_to_string(list(text order by dataset), '; ')
        )
    from unmeasured
    group by status
    union all
    select
        20,
        'Intervals of debiased readers are over questions, not over trainings. '
        || if(
            count(distinct seed) = 1, 'Each reader is a single training.',
            'Compare the seeds of a method: an interval holds for one training, not for the method.'
        )
    from debiased
    having count(*) > 0
    union all
    select
        21,
        format(
            'The standard reader shows no bias on the validation set, so which side counts as biased may be chance: {}. A '
            || 'method that works against the other side strengthens a bias.',
            some_of(list(format('{} of {} on {}', bias, base, data) order by base, data, bias), 3)
        )
    from qa_segments
    where bias_significance = 0 and (select count(*) from debiased) > 0
    union all
    select
        22,
        format(
            'Thresholds were searched on the answers of standard readers ({}). That favours the debiased readers, whose bias '
            || 'is measured where the standard reader''s is largest.', some_of(list(distinct searched_on order by searched_on), 3)
        )
    from (
        select searched_on from biases where threshold is not null
        union all
        select searched_on from qa_debiasing where verdict is not null
    )
    where
        searched_on in (select model from trained_models where method = 'standard') and (select count(*) from debiased) > 0
    having count(*) > 0
    union all
    select
        23,
        format(
            'Where the standard reader shows no bias, no method can lower it: {}.',
            some_of(list(distinct format('{} on {}', trained_models.standard, heuristic)), 3)
        )
    from qa_debiasing
    inner join trained_models using (model)
    semi join (from qa_examples where role = 'in_distribution') as sets using (dataset)
    where is_addressed and standard_significance = 0
    union all
    select
        24,
        format('Readers were trained for different numbers of steps than their standard readers: {}.', some_of(list(
            format('{} {:,} ({} {:,})', debiased.model, debiased.steps, debiased.standard, standards.steps)
            order by debiased.number
        ), 3))
    from debiased
    inner join trained_models as standards on debiased.standard = standards.model
    where debiased.steps <> standards.steps and debiased.problem is null
    union all
    select
        25,
        format(
            'Mikula et al. chose the scales of LMIX and the entropy penalty of CREG by F1 on AdversarialQA: with their values, '
            || 'changes on {} lean high.', listed(list(distinct dataset order by dataset))
        )
    from qa_examples
    where
        role = 'out_of_distribution' and dataset ilike '%adversarial%'
        and (select count(*) from debiased where method in ('learned_mixin', 'confidence_regularization')) > 0
    union all
    select
        26,
        format(
            'Trainings failed, and their readers have no results: {}.',
            some_of(list(format('{} ({})', model, problem) order by number), 3)
        )
    from trained_models
    where problem is not null
    union all
    select 5, left_out_caution(flatten(list(rows_of)))
    from failed_parts
    where is_left_out
    having count(*) > 0
)

select line, '' as lead, text from sentences where text is not null order by all
