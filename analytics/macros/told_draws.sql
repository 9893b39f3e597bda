-- told_draws(thing, n, apart): what a set or seed of demonstrations is, why there are several, and how far they are apart.
create macro told_draws(thing, n, apart) as
    format(
        'a {0} is one draw of the demonstrations. Results are means over {1} {0}s, as one draw may be lucky. {2}. '
        || 'To choose a {0}, test it on other rows: on these, the best one looks too good.', thing, n, apart
    )
