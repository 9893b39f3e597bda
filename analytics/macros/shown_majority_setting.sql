-- shown_majority_setting(predict, method, n_demos, instruction): a setting of majority bias as pages call it.
create macro shown_majority_setting(predict, method, n_demos, instruction) as
    shown_predict(predict) || if(method = 'none', '', ', ' || shown_method(method)) || ', ' || with_demos(n_demos)
    || if(instruction, ', with', ', without') || ' instruction'
