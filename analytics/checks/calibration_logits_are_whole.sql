-- Rows here: a calibration that gives probabilities by itself (gives: log_probability) and leaves out labels of a
-- prompt, or prompts of a context.
with
given as (
    select
        logits.name, logits.adaptation, context_id, logits.prompt_id, count(logits.log_probability) as n_given,
        any_value(len(prompts.labels)) as n_labels
    from calibration_logits as logits
    inner join prompts using (prompt_id)
    group by all
),

contexts_given as (
    select name, adaptation, context_id, count(*) as n_given, count(*) filter (n_given <> n_labels) as n_cut
    from given
    group by all
),

measured as (
    select context_id, count(*) as n_prompts
    from prompts
    where purpose in ('main', 'bias_score', 'held_out', 'majority')
    group by all
)

select
    format('{} gives {} of {} prompts of the context {}, {} of them with labels left out',
           name, n_given, n_prompts, context_id, n_cut) as problem,
    *
from contexts_given
inner join measured using (context_id)
where n_given <> n_prompts or n_cut > 0
order by all
