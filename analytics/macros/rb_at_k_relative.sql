-- rb_at_k_relative(list(f1), k): the share of settings with F1 within k percent of the best, max(f1) * (1 - k / 100).
-- The other reading of P2's "within K %", which its numbers do not follow; all else is as in rb_at_k.
create macro rb_at_k_relative(f1s, k) as
    list_transform(
        [{'f1s': f1s::double[], 'bar': list_max(f1s::double[]) * (1 - k / 100) - 1e-9}],
        lambda given: case
            when list_count(given.f1s) = len(given.f1s)
                then len(list_filter(given.f1s, lambda f1: f1 >= given.bar)) / nullif(len(given.f1s), 0)
        end
    )[1]
