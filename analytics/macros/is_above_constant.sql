-- is_above_constant(constant_p, values, constants): whether a setting is better than the best answer that is always the
-- same: true where a metric is shown to exceed that of the constant answer (tests_above_constant), false where none of
-- the values exceeds its constant, null where that is not shown.
create macro is_above_constant(constant_p, given, constants) as
    case
        when constant_p <= 0.05 then true
        when list_bool_and(list_transform(list_zip(given, constants), lambda pair: pair[1] <= pair[2] + 1e-9)) then false
    end
