-- fall_and_rise(falls, rises): what falls and rises, lists of names, as parts of a sentence; empty where both are
-- empty.
create macro fall_and_rise(falls, rises) as
    concat_ws(
        '; ', if(falls = [], null, listed(falls) || if(len(falls) = 1, ' falls', ' fall')),
        if(rises = [], null, listed(rises) || if(len(rises) = 1, ' rises', ' rise'))
    )
