-- One row per row of qa_bias_comparison, with words for it, as in label_bias_compared. deployed: each set; is_headline:
-- of the sets with a gap, or else of all, the one with the most questions.
with
sets as (
    select
        run, other_run, model, other_model, dataset,
        row_number() over (
            partition by run, other_run, model, other_model
            order by bool_or(metric = 'gap') desc, max(n_questions) desc, dataset
        ) = 1 as is_headline
    from qa_bias_comparison
    group by run, other_run, model, other_model, dataset
),

measured as (
    select
        compared.*,
        if(len(shared.other_models) > 1, compared.other_run || ': ' || other_model, compared.other_run) as who,
        if(len(shared.models) > 1, compared.run || ': ' || model, compared.run) as against,
        counted(shared.n_questions, 'question') || ' on ' || counted(shared.n_articles, 'article') as scope,
        'articles like these' as holds_for, dataset as place, dense_rank() over (order by dataset) as place_number,
        false as is_mitigated, 'On' as deployed, is_headline,
        if(
            metric = 'gap',
            'gap by ' || heuristic || if(threshold is null, '', format(' (T = {:g})', threshold)),
            if(metric = 'f1', 'F1', 'exact match')
        ) as shown,
        list_position(['exact_match', 'f1', 'gap'], metric) as number,
        if(metric = 'gap', 'bias', 'performance') as measures,
        true as is_first, metric = 'gap' as is_low_better, true as is_above_constant, true as other_is_above_constant,
        null::double as baseline, null::varchar as reason, answers.n_predictions, answers.n_differing
    from qa_bias_comparison as compared
    inner join sets using (run, other_run, model, other_model, dataset)
    left join qa_bias_agreement as answers using (run, other_run, model, other_model, dataset)
    inner join qa_bias_shared as shared on compared.run = shared.run and compared.other_run = shared.other_run
)

from compared_words('measured')
order by all
