-- One row per (trained reader that is measured, dataset, heuristic): its prediction bias against that of the standard
-- reader of the same base, data and seed, in points (0 to 100); *_change is the reader minus its standard one.
-- is_addressed: the heuristic is the bias that its method works against. threshold, status, worse_high: its own of
-- qa_bias_by_heuristic. All of the standard reader, and every change, is null for the standard readers themselves, and
-- where either is not measured. significance_change: of the published significances. Its interval: the middle 95 % of
-- the n_draws bootstrap samples of whole articles in which both have one; of expected_significance, without the noise
-- of the trials, of the same questions for both. The threshold is taken as given: one that was searched on the standard
-- reader's predictions favours changes below 0. gap: difference of qa_bias_by_heuristic (exact match, lower minus
-- higher), times the sign that makes the standard reader's positive, so that a gap below 0 is a bias the other way.
-- gap_change: of the paired questions, with a 95 % interval whose error is clustered by article: Student's t, with one
-- degree of freedom less than the articles of the segment that has fewest. Both intervals are null where a segment lies
-- in a single article; that of significance_change is too narrow for few of them (simulated, it covers 93 to 95 % with
-- 48 articles and 89 to 90 % with 12). exact_match: of the whole set. is_nearly_broken: worse_high is below two thirds
-- of the standard reader's, as with all of P3's LearnedMixin models; a low significance is no success then. n_rows:
-- questions with a value that both answered. expected_change: significance_change by the closed form
-- (expected_significance), without the noise of the trials. significance_error: its standard deviation over the
-- bootstrap samples. p: of expected_change over it, by Student's t with one degree of freedom less than the articles of
-- the segment that has fewest. p_adjusted: holm over all readers, datasets and heuristics of a page, which shows the
-- sets in distribution (other roles are families of their own), and doubled, for a page has another family, that of
-- answers (qa_answer_changes): in 95 % of pages none of its words is wrong. simultaneous_low, simultaneous_high: the
-- band of expected_change that belongs to it (Bonferroni). verdict: the word that this supports (verdict), of at least
-- a point of significance_change; where it and expected_change differ in sign, none. searched_on: on whose answers the
-- standard reader's threshold was searched, null where the spec gives it. A searched threshold counts only where that
-- bias is more than chance (qa_bias_tests), as in qa_model_comparisons, and is then taken as given, which still favours
-- 'lower' somewhat. reason: why there is no p: 'no threshold', 'not measured for both', 'threshold by chance', 'one
-- article', 'no spread' (of the bootstrap samples). Null where there is one, and of standard readers.
with
compared as (
    select
        trained_models.model, trained_models.base, trained_models.data, trained_models.method, trained_models.bias,
        trained_models.seed, biases.dataset, biases.heuristic, biases.threshold, biases.status, biases.n_lower,
        biases.n_higher, biases.bias_significance, biases.worse_high, biases.difference,
        standards.threshold as standard_threshold, standards.n_lower as standard_n_lower,
        standards.n_higher as standard_n_higher, standards.bias_significance as standard_significance,
        standards.worse_high as standard_worse_high, standards.difference as standard_difference,
        case when standards.threshold is not null then standards.searched_on end as searched_on,
        coalesce(searched.is_supported, standards.searched_on is null) as is_threshold_supported,
        coalesce(biases.status = 'measured' and standards.status = 'measured', false) as is_compared,
        case
            when if(trained_models.standard is null, biases.difference, standards.difference) < 0 then -1
            when if(trained_models.standard is null, biases.difference, standards.difference) >= 0 then 1
        end as side
    from trained_models
    inner join qa_bias_by_heuristic as biases using (model)
    left join (select * rename (model as standard) from qa_bias_by_heuristic) as standards
        using (standard, dataset, heuristic)
    left join qa_bias_tests as searched
        on
            standards.searched_on = searched.model and standards.dataset = searched.dataset
            and standards.heuristic = searched.heuristic
    where trained_models.method <> 'bias_model'
),

answers as (
    select
        compared.model, compared.dataset, compared.heuristic, qa_paired_answers.article, qa_paired_answers.exact_match,
        qa_paired_answers.standard_exact_match, qa_attributes.value <= compared.threshold as is_lower,
        qa_attributes.value <= compared.standard_threshold as is_standard_lower
    from compared
    inner join qa_paired_answers using (model, dataset)
    inner join qa_attributes using (dataset, example_id, heuristic)
    where qa_attributes.is_measured
),

sizes as (
    select
        model, dataset, heuristic,
        if(count(standard_exact_match) > 0, count(standard_exact_match), count(*)) as n_rows,
        if(
            count(standard_exact_match) > 0,
            count(distinct article) filter (standard_exact_match is not null),
            count(distinct article)
        ) as n_articles
    from answers
    group by all
),

-- Sums of zeros and ones, which are exact in any order.
articles as (
    select
        model, dataset, heuristic, article, count(*) filter (is_lower) as n_lower,
        count(*) filter (not is_lower) as n_higher, count(*) filter (is_standard_lower) as n_standard_lower,
        count(*) filter (not is_standard_lower) as n_standard_higher,
        coalesce(sum(exact_match) filter (is_lower), 0) as lower,
        coalesce(sum(exact_match) filter (not is_lower), 0) as higher,
        coalesce(sum(standard_exact_match) filter (is_standard_lower), 0) as standard_lower,
        coalesce(sum(standard_exact_match) filter (not is_standard_lower), 0) as standard_higher
    from answers
    inner join compared using (model, dataset, heuristic)
    where compared.is_compared and standard_exact_match is not null
    group by all
),

means as (
    select
        model, dataset, heuristic, sum(n_lower) as n_lower, sum(n_higher) as n_higher,
        sum(columns('^n_standard_(lower|higher)$')) as "\0",
        sum(lower) / sum(n_lower) as lower, sum(higher) / sum(n_higher) as higher,
        sum(standard_lower) / sum(n_standard_lower) as standard_lower,
        sum(standard_higher) / sum(n_standard_higher) as standard_higher,
        count(*) as n_articles,
        least(
            count(*) filter (articles.n_lower > 0), count(*) filter (articles.n_higher > 0),
            count(*) filter (articles.n_standard_lower > 0), count(*) filter (articles.n_standard_higher > 0)
        ) as n_least_articles
    from articles
    group by all
),

-- How far each article moves the difference of the two gaps.
influences as (
    select
        model, dataset, heuristic, articles.article,
        (articles.lower - articles.n_lower * means.lower) / means.n_lower
        - (articles.higher - articles.n_higher * means.higher) / means.n_higher
        - (articles.standard_lower - articles.n_standard_lower * means.standard_lower) / means.n_standard_lower
        + (articles.standard_higher - articles.n_standard_higher * means.standard_higher) / means.n_standard_higher
            as influence
    from articles
    inner join means using (model, dataset, heuristic)
),

errors as (
    select
        model, dataset, heuristic,
        sqrt(sum(power(influence, 2) order by article) * count(*) / nullif(count(*) - 1, 0)) as error
    from influences
    group by all
),

gaps as (
    select
        model, dataset, heuristic, means.n_least_articles, means.n_least_articles > 1 as has_error,
        expected_significance(
            means.lower, compared.n_lower, means.higher, compared.n_higher, qa_settings.sample, qa_settings.replacement
        ) - expected_significance(
            means.standard_lower, compared.standard_n_lower, means.standard_higher, compared.standard_n_higher,
            qa_settings.sample, qa_settings.replacement
        ) as expected_change,
        100 * (means.lower - means.higher - means.standard_lower + means.standard_higher) as gap_change,
        100 * t_quantile(means.n_least_articles - 1) * errors.error as half_width
    from means
    inner join errors using (model, dataset, heuristic)
    inner join compared using (model, dataset, heuristic)
    cross join qa_settings
),

draws as (
    select
        model, dataset, heuristic, draw,
        expected_significance(
            qa_change_draws.lower, compared.n_lower, qa_change_draws.higher, compared.n_higher,
            qa_settings.sample, qa_settings.replacement
        ) - expected_significance(
            qa_change_draws.standard_lower, compared.standard_n_lower,
            qa_change_draws.standard_higher, compared.standard_n_higher,
            qa_settings.sample, qa_settings.replacement
        ) as change
    from qa_change_draws
    inner join compared using (model, dataset, heuristic)
    cross join qa_settings
    where compared.is_compared
),

intervals as (
    select
        model, dataset, heuristic, quantile_cont(change, [0.025, 0.975]) as bounds,
        stddev_pop(change order by draw) as error, count(change) as n_draws
    from draws
    group by all
),

tested as (
    select
        model, dataset, heuristic, gaps.n_least_articles, gaps.expected_change,
        case when gaps.has_error then intervals.error end as error,
        case
            when compared.standard_significance is null or compared.bias_significance is null then 'not measured for both'
            when compared.threshold is null or compared.standard_threshold is null then 'no threshold'
            when not compared.is_compared then 'not measured for both'
            when not compared.is_threshold_supported then 'threshold by chance'
            when not coalesce(gaps.has_error, false) then 'one article'
            when coalesce(intervals.error, 0) < 1e-9 and abs(gaps.expected_change) >= 1e-9 then 'no spread'
        end as reason,
        case
            when reason is not null then null
            when intervals.error < 1e-9 then 1
            else student_p(gaps.expected_change / intervals.error, gaps.n_least_articles - 1)
        end as p
    from compared
    inner join trained_models using (model)
    left join gaps using (model, dataset, heuristic)
    left join intervals using (model, dataset, heuristic)
    where trained_models.method <> 'standard'
),

tests as (
    select roles.role as family, {'model': model, 'dataset': dataset, 'heuristic': heuristic} as test, p
    from tested
    inner join (select distinct dataset, role from qa_articles) as roles using (dataset)
),

adjusted as (
    select
        unnest(test),
        case when p_adjusted is not null then least(1, 2 * p_adjusted) end as p_adjusted,
        count(p_adjusted) over (partition by family) as n_tests
    from holm('tests')
),

judged as (
    select
        tested.*, p_adjusted,
        case when p is not null then student_quantile(0.025 / n_tests, n_least_articles - 1) * error end as reach
    from tested
    inner join adjusted using (model, dataset, heuristic)
)

select
    model, compared.base, compared.data, compared.method, compared.bias, compared.seed, dataset, heuristic,
    coalesce(compared.bias = heuristic, false) as is_addressed, compared.threshold, compared.status,
    compared.bias_significance, compared.standard_significance,
    compared.bias_significance - compared.standard_significance as significance_change,
    if(gaps.has_error, intervals.bounds[1], null) as significance_change_low,
    if(gaps.has_error, intervals.bounds[2], null) as significance_change_high,
    compared.worse_high, compared.standard_worse_high,
    compared.worse_high - compared.standard_worse_high as worse_high_change,
    compared.side * compared.difference as gap, compared.side * compared.standard_difference as standard_gap,
    compared.side * gaps.gap_change as gap_change,
    compared.side * gaps.gap_change - gaps.half_width as gap_change_low,
    compared.side * gaps.gap_change + gaps.half_width as gap_change_high,
    100 * measured.exact_match as exact_match, 100 * standard_measured.exact_match as standard_exact_match,
    compared.worse_high < 2 / 3 * compared.standard_worse_high as is_nearly_broken,
    coalesce(sizes.n_rows, 0) as n_rows, coalesce(sizes.n_articles, 0) as n_articles,
    coalesce(intervals.n_draws, 0) as n_draws, judged.expected_change, judged.error as significance_error, judged.p,
    judged.p_adjusted, judged.expected_change - judged.reach as simultaneous_low,
    judged.expected_change + judged.reach as simultaneous_high,
    case
        when judged.p is not null then verdict(
            case when judged.expected_change * significance_change > 0 then significance_change / 100 else 0 end,
            judged.p_adjusted,
            (judged.expected_change - judged.reach) / 100,
            (judged.expected_change + judged.reach) / 100,
            judged.n_least_articles,
            least_effect('significance')
        )
    end as verdict,
    compared.searched_on, judged.reason
from compared
inner join trained_models using (model)
inner join qa_by_dataset as measured using (model, dataset)
left join (select * rename (model as standard) from qa_by_dataset) as standard_measured using (standard, dataset)
left join sizes using (model, dataset, heuristic)
left join gaps using (model, dataset, heuristic)
left join intervals using (model, dataset, heuristic)
left join judged using (model, dataset, heuristic)
order by all
