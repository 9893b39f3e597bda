"""The kind majority_bias: how skewed may demonstrations be before predictions follow them (P2)?"""

from collections.abc import Iterator
from dataclasses import replace

from biaseval.analysis.causal_draws import derive_majority_bias
from biaseval.analysis.sql_files import session
from biaseval.errors import Problems
from biaseval.inputs.chat import chat_notes
from biaseval.majority_bias.data import read_dataset
from biaseval.majority_bias.plan import plan_settings
from biaseval.pipelines.kind import Deferred, Description, Kind
from biaseval.pipelines.labels import causal
from biaseval.pipelines.labels.adapters import refuse_given_up
from biaseval.pipelines.labels.label_scores import n_passes
from biaseval.pipelines.planning import CausalInputs, Planned, PlanSummary
from biaseval.prompting.parts import n_prompts, n_scores
from biaseval.prompting.power import DRAW_DEVIATION
from biaseval.spec import MajorityBiasSpec, break_cautions
from biaseval.tables import output_tables


def _read(spec: MajorityBiasSpec) -> CausalInputs:
    problems = Problems()
    with problems.noted():
        dataset = read_dataset(spec)
    with problems.noted():
        facts, tokenizer = causal.model_inputs(spec.model)
    problems.refuse()
    is_scored = "label_scores" in output_tables(spec.predict)
    n_texts = n_passes(spec.predict) + is_scored * (len(dataset.labels) - 1)

    def pieces() -> Iterator[Planned]:
        for plan in plan_settings(spec, dataset, tokenizer, facts.window):
            training, untrainable = causal.with_training_rows(spec, plan.training_rows, tokenizer, facts.window)
            made = causal.scored(plan.parts)
            yield Planned(
                tables={"settings": plan.settings, "contexts": plan.contexts, **training},
                parts=plan.parts,
                summary=PlanSummary(
                    n_prompts=n_prompts(plan.parts),
                    n_scores=is_scored * n_scores(made),
                    tokens=n_passes(spec.predict) * sum(part.tokens for part in made),
                    tokens_unshared=n_texts * sum(part.tokens_unshared for part in made) // len(dataset.labels),
                    notes=plan.notes,
                    n_settings=1,
                ),
                problems=[*plan.problems, *untrainable],
            )

    return CausalInputs(
        subject=f"{len(dataset.test):,} test rows, demonstrations from {len(dataset.train):,}", model=facts,
        tokenizer=tokenizer,
        start=PlanSummary(
            n_tasks=1, notes=[*dataset.notes, *chat_notes(spec.model, tokenizer), *break_cautions(spec)],
            n_test_rows=len(dataset.test), n_settings=0,
        ),
        problems=causal.section_problems(spec), pieces=pieces,
    )  # fmt: skip


def _describe(spec: MajorityBiasSpec, inputs: CausalInputs) -> Description:
    described = causal.describe_causal(spec, inputs)
    smallest = _smallest_bias(spec, described.facts["n_settings"])
    if len(spec.seeds) == 1:
        lines = [("smallest bias found", "none: one seed cannot separate proportions from the draw of demonstrations")]
    elif smallest is None:
        lines = [("smallest bias found", "hardly any: so few settings and seeds have too few orders for the test")]
    else:
        assumed = f"if draws of demonstrations have a standard deviation of {DRAW_DEVIATION}"
        lines = [
            ("smallest bias found", f"a standard deviation of weighted F1 over settings of {smallest:.3f}"),
            ("", f"without the noise of seeds, in four of five such runs, by the tests of the whole page, {assumed}"),
        ]
    facts = {**described.facts, "smallest_bias": {"sd_f1_corrected": smallest}}
    return replace(described, lines=[*described.lines, *lines], facts=facts)


def _smallest_bias(spec: MajorityBiasSpec, n_settings: int) -> float | None:
    """Return the standard deviation of weighted F1 over settings, without noise, that the run would mostly find."""
    n_ways = sum(1 + len(spec.calibration) * (predict == "likelihood") for predict in spec.predict)
    n_tests = len(spec.prompt.instruction) * (1 if spec.lora is None else 2) * n_ways
    with session([]) as connection:
        [(found,)] = connection.execute(
            "select visible_settings(?, ?, ?, ?)", [DRAW_DEVIATION**2, n_settings, len(spec.seeds), n_tests]
        ).fetchall()
    return None if found is None else float(found)


_HEADLINE = """
select
    instruction, predict, method, own.mean_f1, own.sd_f1, own.max_f1, own.is_any_setting_above_constant, own.rb_at_10,
    if(evidence is null, null, advised_majority(changed)) as verdict, own.share_majority, own.share_last,
    own.share_no_label, own.n_settings, own.n_seeds, own.n_rows
from majority_by_model as own
left join majority_remedies as changed using (model, n_demos, instruction, predict, method)
order by instruction, predict, array_position({methods}, method)
"""

MAJORITY_BIAS = Kind(
    read=_read,
    describe=_describe,
    write=causal.write_causal,
    extend=causal.extend_causal,
    stages=lambda run, spec, plan: causal.causal_stages(run, spec, plan, spec.predict),
    refuse_stopped=refuse_given_up,
    derive=derive_majority_bias,
    page=Deferred("biaseval.report:run_page"),
    headline=lambda spec: _HEADLINE,
)
