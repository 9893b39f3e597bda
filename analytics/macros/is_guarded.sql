-- is_guarded(metric): whether words about the metric, or about that of which it is the partner, are guarded
-- (all_partners).
create macro is_guarded(metric) as
    len(list_filter(all_partners(), lambda pair: pair.is_guarded and metric in (pair.metric, pair.partner))) > 0
