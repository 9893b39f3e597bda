-- fall_and_rise(falls, rises): what falls and rises, lists of names, as parts of a sentence; empty where both are
-- empty.
create macro fall_and_rise(falls, rises) as
    array_to_string(list_filter(
        [
            if(falls = [], null, listed(falls) || if(len(falls) = 1, ' falls', ' fall')),
            if(rises = [], null, listed(rises) || if(len(rises) = 1, ' rises', ' rise'))
        ],
        lambda one: one is not null
    ), '; ')
