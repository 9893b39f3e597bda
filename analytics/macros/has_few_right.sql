-- has_few_right(exact_match): whether so few answers (0 to 1) are exact that groups of questions can hardly differ,
-- whatever a model relies on.
create macro has_few_right(exact_match) as
    exact_match < 0.1
