-- One row per caution about the numbers of a search: line, its place; lead, empty; text.
with
setting as (
    select settings.*, objective, is_of_bias_score
    from search_settings as settings
    cross join search_objectives
),

sentences as (
    select
        11 as line,
        'choose_on: published. The choice saw all the data that it is measured on, as in the papers: its value is optimistic '
        || 'by an amount that this search does not measure.' as text
    from setting
    where choose_on = 'published' and exists (select 1 from search_best)
    union all
    select
        12,
        'Each interval is of one trial or one comparison, without correction for their number or for the choice: on the data '
        || 'that chose, the value of the chosen trial is optimistic. '
        || if(
            choose_on = 'published', 'These intervals support no verdict.',
            'Verdicts (better, worse) come from tests on data that did not choose: the chance of any wrong one is 5 % over '
            || 'all differences from chosen trials, and 5 % over all gains.'
        )
    from setting
    where exists (select 1 from search_best where n_done > 1)
    union all
    select
        13,
        format(
            '{}: sampling noise alone makes BiasScore greater than 0, so no test compares trials by it. The column '
            || 'squared_preference has no such noise on average.',
            objective
        )
    from setting
    where is_of_bias_score
    union all
    select
        14,
        format('Some values of {} have no interval: without some articles or rows, the query returns no number.', objective)
    from setting
    where exists (select 1 from search_trials where value is not null and value_low is null)
    union all
    select
        15,
        format(
            '{} failed, so the search did not see {} values; Cost gives the reasons.', counted(n_trials, 'trial'),
            if(n_trials = 1, 'its', 'their')
        )
    from search_costs
    where state = 'failed'
)

select line, '' as lead, text from sentences order by all
