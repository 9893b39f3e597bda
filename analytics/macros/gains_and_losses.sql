-- gains_and_losses(words): which metrics fall and rise, the better changes before the worse, as a part of a sentence;
-- empty where none does. words: a list of {'shown', 'word', 'good'}; good: 'lower' or 'higher', the better word.
create macro gains_and_losses(words) as
    concat_ws(
        ', but ',
        nullif(concat_ws(
            ', ', moving([one.shown for one in words if one.word = 'lower' and one.good = 'lower'], 'fall'),
            moving([one.shown for one in words if one.word = 'higher' and one.good = 'higher'], 'rise')
        ), ''),
        nullif(concat_ws(
            ', ', moving([one.shown for one in words if one.word = 'lower' and one.good = 'higher'], 'fall'),
            moving([one.shown for one in words if one.word = 'higher' and one.good = 'lower'], 'rise')
        ), '')
    )
