-- One row per (model, task, n_demos, instruction, predict, method): P2's Table 1. A setting counts with its mean over
-- seeds. sd_f1 is the sample standard deviation over settings, as in P2; mean_sd_over_seeds the mean over settings of
-- that over seeds. Intervals are over resamples of the test rows. share_majority is over settings with a majority. The
-- bootstrap of rb_at_10 leans low, and that of an sd over settings high: resampling adds noise to each setting, so that
-- fewer lie near the best of them and all lie further apart. share_most_frequent: how much alike the answers are
-- (majority_answers). constant_f1: weighted F1 of the best constant answer on the same rows, which is the gold label
-- with the largest share p: 2 p^2 / (1 + p); majority_accuracy: that share, its accuracy; accuracy: of the predictions,
-- a setting counting as in mean_f1. share_majority_of_constant: the largest share_majority that a constant answer can
-- have: of the settings with a majority, those of one label. has_many_without_label: more outputs than in P2, 3 % or
-- more, are no label. is_above_constant, constant_p: mean_f1 or accuracy is better than that of the best constant
-- answer, as in majority_by_setting; n_settings_above, n_settings_not_above: settings of which that is true, and false;
-- is_any_setting_above_constant: true with one of the former, false where all are the latter, else null. Where it is
-- not true, rb_at_10 says nothing of robustness. is_bias_shown: proportions_p_adjusted is at most 5 %. boundary and
-- n_marked: from which weighted F1 on a setting is inside the robustness boundary, and how many are; null and 0 where
-- that says nothing (majority_over_seeds). half_width: the median half width of the settings' intervals, without those
-- of width 0 (all answers right, or all wrong) unless all are so; has_enough_rows: it is at most the 0.1 of the
-- boundary, else chance decides which settings are inside. n_test_rows: of each setting and seed. n_parameters is the
-- model's, null where the run does not say. All intervals over resamples of the rows, and rb_at_10, hold for these
-- draws of demonstrations: which settings are best is decided by those, too. sd_f1_corrected: sd_f1 without the noise
-- of the seeds; proportions_p and proportions_p_adjusted: of a test that proportions do not matter at all;
-- sd_f1_smallest_detectable: the smallest sd_f1_corrected that this test mostly finds (majority_components; null with
-- one seed). share_last is near 1 / labels whatever a model does: majority_effect, recency and recency_at_equal_shares,
-- with intervals over seeds and test rows, say what predictions follow (majority_following).
with
intervals as (
    select
        model, task, n_demos, instruction, predict, method, interval_low(mean_f1, draw) as mean_f1_low,
        interval_high(mean_f1, draw) as mean_f1_high, interval_low(rb_at_10, draw) as rb_at_10_low,
        interval_high(rb_at_10, draw) as rb_at_10_high
    from majority_draws_by_model
    group by all
),

estimates as (
    select
        model, task, n_demos, instruction, predict, method, avg(weighted_f1 order by number) as mean_f1,
        stddev_samp(weighted_f1 order by number) as sd_f1, max(weighted_f1) as max_f1,
        rb_at_k(list(weighted_f1), 10) as rb_at_10, rb_at_k_relative(list(weighted_f1), 10) as rb_at_10_relative,
        avg(sd_f1 order by number) as mean_sd_over_seeds,
        avg(columns('^(share_majority|share_last|share_no_label|accuracy)$') order by number) as "\1",
        count(*) as n_settings, count(share_majority) as n_settings_with_majority, any_value(boundary) as boundary,
        count(*) filter (is_marked) as n_marked,
        if(count(weighted_f1_low) = count(*), coalesce(median(width) filter (width > 2e-9), 0) / 2, null) as half_width,
        max(n_seeds) as n_seeds, sum(n_rows)::bigint as n_rows
    from (select *, weighted_f1_high - weighted_f1_low as width from majority_over_seeds)
    group by all
),

winners as (
    select list_position(counts, list_max(counts)) as label_number, count(*) as n_won
    from settings
    where len(list_filter(counts, lambda n: n = list_max(counts))) = 1
    group by all
)

select
    model, run_settings.n_parameters, task, n_demos, instruction, estimates.predict, method, mean_f1, mean_f1_low,
    mean_f1_high, sd_f1, max_f1, rb_at_10, rb_at_10_low, rb_at_10_high, rb_at_10_relative, mean_sd_over_seeds,
    share_majority, share_last, share_no_label, share_most_frequent, constant_f1,
    (select max(n_won) / sum(n_won) from winners) as share_majority_of_constant,
    share_no_label >= 0.03 as has_many_without_label, boundary, n_marked, half_width,
    coalesce(half_width <= 0.1, false) as has_enough_rows, estimates.n_settings, n_settings_with_majority,
    estimates.n_seeds, estimates.n_rows,
    estimates.n_rows // (estimates.n_settings * estimates.n_seeds) as n_test_rows,
    sd_f1_corrected, proportions_p, proportions_p_adjusted, majority_effect, majority_effect_low, majority_effect_high,
    recency, recency_low, recency_high, recency_at_equal_shares, recency_at_equal_shares_low,
    recency_at_equal_shares_high, accuracy, majority_accuracy, constant_p, is_above_constant, n_settings_above,
    n_settings_not_above,
    case when n_settings_above > 0 then true when n_settings_not_above = estimates.n_settings then false end
        as is_any_setting_above_constant,
    proportions_p_adjusted <= 0.05 as is_bias_shown,
    sd_f1_smallest_detectable, run_settings.family, run_settings.tuned_from
from estimates
inner join intervals using (model, task, n_demos, instruction, predict, method)
inner join majority_answers using (task, n_demos, instruction, predict, method)
inner join majority_components using (model, task, n_demos, instruction, predict, method)
inner join majority_following using (task, n_demos, instruction, predict, method)
inner join (select * from majority_constant_tests where setting is null) as tests
    using (task, n_demos, instruction, predict, method)
inner join run_settings using (model)
order by all
