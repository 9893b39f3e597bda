-- One row per (context, adaptation) that scores its prompts: none, the model itself; lora, the model with the adapter of
-- the context, which not every context has.
select context_id, 'none' as adaptation
from contexts
union all
select context_id, 'lora' as adaptation
from contexts
semi join training_rows as trained
    on
        contexts.task = trained.task and contexts.n_demos = trained.n_demos and contexts.demo_set = trained.demo_set
        and contexts.setting is not distinct from trained.setting and contexts.instruction = trained.instruction
