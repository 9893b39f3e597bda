-- student_p(t, df): the two-sided p-value of Student's t, by the normal deviate of Wallace (1959): from 6 degrees of
-- freedom on right to 3 % of itself where it is above 1 % (10 % from 3 on), and smaller ones are too large. Null of
-- null and below 1.
create macro student_p(t, df) as
    case when df >= 1 then normal_p(sqrt(df * ln(1 + t * t / df)) * (8 * df + 1) / (8 * df + 3)) end
