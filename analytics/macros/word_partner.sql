-- word_partner(metric): the partner that a word about the metric needs (all_partners); null without one.
create macro word_partner(metric) as
    list_filter(all_partners(), lambda pair: pair.metric = metric)[1].partner
