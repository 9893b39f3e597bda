-- boundary_word(word, row_sign): the verdict on a difference of RB@10, of the word that the test over seeds has for it
-- (verdict) and the sign that resamples of the test rows have (clear_sign): higher or lower only where both are to the
-- same side.
create macro boundary_word(word, row_sign) as
    case
        when word = 'higher' and row_sign is distinct from 1 then 'unclear'
        when word = 'lower' and row_sign is distinct from -1 then 'unclear'
        else word
    end
