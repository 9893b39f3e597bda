-- rb_at_k(list(f1), k): the share of settings with F1 within k points of the best, f1 >= max(f1) - k / 100 (P2, RB@K).
-- A setting on the boundary counts (tolerance 1e-9), and so does the best itself. Null if a setting's F1 is null.
create macro rb_at_k(f1s, k) as
    list_transform(
        [{'f1s': f1s::double[], 'bar': list_max(f1s::double[]) - k / 100 - 1e-9}],
        lambda given: case
            when list_count(given.f1s) = len(given.f1s)
                then len(list_filter(given.f1s, lambda f1: f1 >= given.bar)) / nullif(len(given.f1s), 0)
        end
    )[1]
