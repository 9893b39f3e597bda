-- One row per (model, task, n_demos, instruction, predict, method): gains and costs of a calibration or an adapter
-- against none. Of mean_f1, sd_f1 and rb_at_10 (majority_by_model): *_before, without it; the same with it;
-- *_difference, the second minus the first; *_difference_low and *_difference_high, its 95 % interval by Student's t
-- over the test rows, with these draws of demonstrations; *_verdict, the word that the test supports
-- (majority_verdicts), and *_reason, why it has none. RB@10 is tested over seeds, of another number: rb_at_10_of_seeds,
-- the mean over seeds of the difference of each, with its interval over them. is_rb_at_10_judged: it was tested; false
-- with fewer than six seeds, too few test rows, or a side of which no setting is shown to be better than one label
-- always. constant_f1: weighted F1 of the best constant answer. is_below_constant: mean_f1 with the method is that or
-- less. is_above_constant: mean_f1 or accuracy is shown to be better than that of such an answer (majority_by_model).
-- f1_evidence: 'higher', 'lower', 'no loss' where the band over rows and draws of the whole family (both_low) lies
-- above minus least_effect (non-inferiority), else 'loss not ruled out'. bias_falls_in: 'sd_f1 and rb_at_10', or the
-- one that shows it (a lower sd_f1, a higher rb_at_10); null where neither does, or one shows the opposite. evidence:
-- 'bias falls, F1 rises', 'bias falls, no loss', 'bias falls, loss not ruled out', 'bias falls, F1 falls', 'mixed' (one
-- of sd_f1 and rb_at_10 shows that bias falls, one that it rises), 'bias rises', 'F1 rises, bias not shown to fall' or
-- 'not shown'. is_supported: the first or the second of these, and is_above_constant.
with
words as (
    from majority_verdicts pivot (
        any_value(estimate) as of_seeds, any_value(low) as low, any_value(high) as high,
        any_value(both_low) as both_low, any_value(verdict) as verdict, any_value(reason) as reason
        for metric in ('mean_f1', 'sd_f1', 'rb_at_10')
        group by model, task, n_demos, instruction, against_instruction, predict, method, against_method
    )
),

graded as (
    select
        *, rb_at_10_verdict is not null and rb_at_10_reason is null as is_rb_at_10_judged,
        coalesce(sd_f1_verdict = 'lower', false) or coalesce(rb_at_10_verdict = 'higher', false) as falls,
        coalesce(sd_f1_verdict = 'higher', false) or coalesce(rb_at_10_verdict = 'lower', false) as rises,
        case
            when mean_f1_verdict in ('higher', 'lower') then mean_f1_verdict
            -- A lower end of exactly 0 is that of rows of which none differs, of which verdict knows how many it takes.
            when
                mean_f1_reason is null and mean_f1_both_low > -least_effect('mean_f1')
                and (mean_f1_both_low <> 0 or mean_f1_verdict = 'negligible')
                then 'no loss'
            else 'loss not ruled out'
        end as f1_evidence,
        case
            when falls and rises then 'mixed'
            when rises then 'bias rises'
            when not falls and f1_evidence = 'higher' then 'F1 rises, bias not shown to fall'
            when not falls then 'not shown'
            when f1_evidence = 'higher' then 'bias falls, F1 rises'
            when f1_evidence = 'lower' then 'bias falls, F1 falls'
            else 'bias falls, ' || f1_evidence
        end as evidence,
        case
            when rises then null
            when sd_f1_verdict = 'lower' and rb_at_10_verdict = 'higher' then 'sd_f1 and rb_at_10'
            when sd_f1_verdict = 'lower' then 'sd_f1'
            when rb_at_10_verdict = 'higher' then 'rb_at_10'
        end as bias_falls_in
    from words
    where method <> 'none' and against_method = 'none' and instruction = against_instruction
)

select
    model, task, n_demos, instruction, predict, graded.method, plain.rb_at_10 as rb_at_10_before, own.rb_at_10,
    own.rb_at_10 - plain.rb_at_10 as rb_at_10_difference, graded.rb_at_10_of_seeds,
    graded.rb_at_10_low as rb_at_10_of_seeds_low, graded.rb_at_10_high as rb_at_10_of_seeds_high,
    graded.rb_at_10_verdict, graded.rb_at_10_reason, graded.is_rb_at_10_judged, plain.mean_f1 as mean_f1_before,
    own.mean_f1, own.mean_f1 - plain.mean_f1 as mean_f1_difference, graded.mean_f1_low as mean_f1_difference_low,
    graded.mean_f1_high as mean_f1_difference_high, graded.mean_f1_verdict, graded.mean_f1_reason,
    plain.sd_f1 as sd_f1_before, own.sd_f1, own.sd_f1 - plain.sd_f1 as sd_f1_difference,
    graded.sd_f1_low as sd_f1_difference_low, graded.sd_f1_high as sd_f1_difference_high, graded.sd_f1_verdict,
    graded.sd_f1_reason, own.constant_f1, own.mean_f1 <= own.constant_f1 as is_below_constant, own.n_settings,
    own.n_seeds, own.n_rows, graded.f1_evidence, graded.bias_falls_in, graded.evidence,
    graded.evidence in ('bias falls, F1 rises', 'bias falls, no loss') and coalesce(own.is_above_constant, false)
        as is_supported,
    own.is_above_constant, own.majority_accuracy, own.accuracy
from graded
inner join majority_by_model as own using (model, task, n_demos, instruction, predict, method)
inner join (select * from majority_by_model where method = 'none') as plain
    using (model, task, n_demos, instruction, predict)
order by all
