-- compared_step(row): a difference of a relation *_compared as a part of a sentence: 0.500 → 0.768, +0.268 [0.1,
-- 0.4], better.
create macro compared_step(row) as
    format(
        '{} {} → {} ({}{}), {}', row.shown, as_rate(row.value), as_rate(row.other_value), as_change(row.estimate),
        as_interval(row.verdict_low, row.verdict_high), row.word
    )
