-- clear_sign(x, low, high): of a difference x with its 95 % interval: 1 or -1 where it is clear, 0 for no difference at
-- all, null where it is not clear; values within 1e-9 of 0 are 0, in the interval too. A bootstrap interval may lie to
-- a side of its own estimate (of RB@10 and of sd, which resampling moves): x is clear only where its interval has its
-- sign and includes it.
create macro clear_sign(x, low, high) as
    case
        when abs(x) <= 1e-9 then 0
        when x > 0 and low > 1e-9 and x between low - 1e-9 and high + 1e-9 then 1
        when x < 0 and high < -1e-9 and x between low - 1e-9 and high + 1e-9 then -1
    end
