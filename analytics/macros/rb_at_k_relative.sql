-- rb_at_k_relative(list(f1), k): the share of settings with F1 within k percent of the best, max(f1) * (1 - k / 100).
-- The other reading of P2's "within K %", which its numbers do not follow; all else is as in rb_at_k.
create macro rb_at_k_relative(f1s, k) as rb_at_k(f1s, k * list_max(f1s::double[]))
