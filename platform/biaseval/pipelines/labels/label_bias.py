"""The kind label_bias: does a causal LM prefer some labels whatever the input (P1)?"""

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pyarrow.compute as pc

from biaseval.analysis.causal_draws import derive_label_bias
from biaseval.analysis.sql_files import session
from biaseval.errors import Problems
from biaseval.inputs.chat import chat_notes
from biaseval.inputs.harness import lm_eval_digest
from biaseval.label_bias.begin import Begun, begin_tasks
from biaseval.label_bias.formats import measured
from biaseval.label_bias.plan import TaskPlan, plan_task
from biaseval.label_bias.sources import Sources, read_sources
from biaseval.label_bias.tasks import tasks_folder
from biaseval.pipelines.kind import Deferred, Description, Kind, Need, Plan
from biaseval.pipelines.labels import causal
from biaseval.pipelines.labels.adapters import refuse_given_up
from biaseval.pipelines.labels.label_scores import LIKELIHOOD
from biaseval.pipelines.planning import CausalInputs, Piece, Planned, PlanSummary
from biaseval.prompting.parts import n_prompts, n_scores
from biaseval.prompting.power import ABOVE_CHANCE, DEVIATION
from biaseval.spec import LabelBiasSpec, LmEvalDataSpec, break_cautions
from biaseval.store import Run


def _read(spec: LabelBiasSpec) -> CausalInputs:
    problems = Problems()
    with problems.noted():
        sources = read_sources(spec)
    with problems.noted():
        facts, tokenizer = causal.model_inputs(spec.model)
    problems.refuse()
    spec.members([source.name for source in sources.tasks])

    prompt = spec.prompt
    n_settings = sum(
        len(measured(prompt.all_formats, n_demos)) * (prompt.demo_sets if n_demos else 1) for n_demos in prompt.n_demos
    )
    return CausalInputs(
        subject=sources.subject,
        model=facts,
        tokenizer=tokenizer,
        start=PlanSummary(
            notes=[*chat_notes(spec.model, tokenizer), *break_cautions(spec)],
            left_out=dict(sources.left_out),
            n_bias_score_rows=0,
            n_pool_rows=0,
            n_gold_labels=0,
            n_fewest_rows=0,
        ),
        problems=causal.section_problems(spec),
        pieces=lambda: _pieces(spec, sources, facts.window, tokenizer),
        most_prompts=n_settings * sum(source.most_rows for source in sources.tasks),
    )


def _pieces(spec: LabelBiasSpec, sources: Sources, window: int | None, tokenizer: Any) -> Iterator[Piece]:
    of_harness = _lm_eval_tasks(spec)
    for begun in begin_tasks(spec, sources):
        piece = _Piece(spec, begun, window)
        # Functions of a task's file are known to this process alone.
        yield piece.plan(tokenizer) if begun.name in of_harness else piece


@dataclass(frozen=True)
class _Piece:
    """A task of the run."""

    spec: LabelBiasSpec
    begun: Begun
    window: int | None

    def plan(self, tokenizer: Any) -> Planned:
        """Return its additions to the run."""
        spec, plan = self.spec, plan_task(self.spec, self.begun, tokenizer, self.window)
        training, untrainable = causal.with_training_rows(spec, plan.training_rows, tokenizer, self.window)
        n_rows = Counter(plan.splits["role"].to_pylist())
        golds = Counter(plan.splits.filter(pc.field("role") == "main")["label"].to_pylist())
        return Planned(
            tables={"tasks": plan.tasks, "splits": plan.splits, "contexts": plan.contexts, **training},
            parts=plan.parts,
            summary=PlanSummary(
                n_tasks=1, n_prompts=n_prompts(plan.parts), n_scores=n_scores(causal.scored(plan.parts)),
                tokens=sum(part.tokens for part in causal.scored(plan.parts)),
                tokens_unshared=sum(part.tokens_unshared for part in causal.scored(plan.parts)),
                n_shortened=plan.n_shortened, n_cut=plan.n_cut, notes=plan.notes,
                n_test_rows=sum(plan.tasks["n_main"].to_pylist()), n_bias_score_rows=n_rows["bias_score"],
                n_pool_rows=n_rows["demonstration"], n_gold_labels=len(golds),
                n_fewest_rows=min(golds.values(), default=0),
            ),
            problems=[*plan.problems, *untrainable], sha256=_recorded(spec, plan),
        )  # fmt: skip


def _recorded(spec: LabelBiasSpec, plan: TaskPlan) -> dict[str, str]:
    """Return the digest of a task by its name in ``environment.json``, unless its files are among the spec's."""
    if spec.tasks is not None:
        return {f"{plan.task}.json": plan.sha256}
    return {plan.task: plan.sha256} if plan.task in _lm_eval_tasks(spec) else {}


def _lm_eval_tasks(spec: LabelBiasSpec) -> dict[str, str]:
    """Return the YAML file of each task that has one: it names files that the spec does not."""
    return {data.name: data.lm_eval for data in spec.datasets().values() if isinstance(data, LmEvalDataSpec)}


def _describe(spec: LabelBiasSpec, inputs: CausalInputs) -> Description:
    described = causal.describe_causal(spec, inputs)
    lines, smallest = list(described.lines), _smallest_bias(described.facts)
    if spec.prompt.formats:
        names = spec.prompt.all_formats
        lines.insert(1, ("formats of the prompt", f"{len(names):,} ({', '.join(names)})"))
    found = ", ".join(
        f"{name} {'none' if smallest[metric] is None else format(smallest[metric], '.3f')}"
        for metric, name in (("rsd", "RSD"), ("bias_score", "BiasScore"))
    )
    lines += [
        ("smallest bias found", f"{found}, in four of five such runs"),
        (
            "",
            f"by the tests of one task{'' if described.facts['n_tasks'] == 1 else ' of average size'} without "
            "demonstrations, if one label is preferred; at an accuracy of "
            f"{smallest['accuracy']:.2f} ({ABOVE_CHANCE:.0%} of the way from chance to 1), and if probabilities have a "
            f"standard deviation of {DEVIATION} within a gold label",
        ),
    ]
    return replace(described, lines=lines, facts={**described.facts, "smallest_bias": smallest})


def _smallest_bias(facts: Mapping[str, Any]) -> dict[str, float | None]:
    """Return the RSD and the BiasScore that a task of average size would show, and the accuracy that this assumes."""
    n_tasks = max(facts["n_tasks"], 1)
    names = ("n_test_rows", "n_fewest_rows", "n_gold_labels", "n_bias_score_rows")
    means = {name: facts[name] / n_tasks for name in names}
    n_labels = means["n_gold_labels"]
    accuracy = 1 / n_labels + ABOVE_CHANCE * (1 - 1 / n_labels) if n_labels else None
    with session([]) as connection:
        found = connection.execute(
            """
            select
                visible_rsd(
                    $accuracy, $n_fewest_rows, $n_test_rows, $n_gold_labels, if($n_gold_labels = 2, 1, $n_gold_labels)
                ),
                visible_bias_score(
                    list_transform(
                        range(round($n_gold_labels)::bigint),
                        lambda label: {
                            'error': $deviation / sqrt($n_bias_score_rows),
                            'df': floor($n_bias_score_rows / $n_gold_labels) - 1
                        }
                    ),
                    if($n_gold_labels = 2, 1, $n_gold_labels)
                )
            """,
            {**means, "accuracy": accuracy, "deviation": DEVIATION},
        ).fetchall()
    return {**dict(zip(("rsd", "bias_score"), found[0], strict=True)), "accuracy": accuracy}


def _write(run: Run, spec: LabelBiasSpec, inputs: CausalInputs) -> Plan:
    plan = causal.write_causal(run, spec, inputs)
    causal.say_what_is_cut(spec.prompt.max_tokens, plan)
    return plan


def _extend(run: Run, spec: LabelBiasSpec, inputs: CausalInputs, plan: Plan) -> Plan:
    """Add to a plan; a run has rows of BiasScore that may have been drawn otherwise, by an older version."""
    sources = read_sources(spec).keeping(run.read_table("splits"))
    return causal.extend_causal(
        run, spec, replace(inputs, pieces=lambda: _pieces(spec, sources, inputs.model.window, inputs.tokenizer)), plan
    )


def _changes(spec: LabelBiasSpec, environment: Mapping[str, Any]) -> list[str]:
    if spec.tasks is None:  # other files are among the spec's
        known = environment["data"]
        changed = [uri for name, uri in _lm_eval_tasks(spec).items() if lm_eval_digest(uri) != known[name]]
        return [f"{uri}: the file, or one that it names, changed" for uri in changed]
    folder = tasks_folder(spec.tasks)
    found = []
    for name, sha256 in environment["data"].items():
        path = folder / name if folder.is_dir() else folder
        if not path.is_file() or hashlib.sha256(path.read_bytes()).hexdigest() != sha256:
            found.append(f"{path}: changed")
    return found


def _refuse_analysis(run: Run, spec: LabelBiasSpec) -> None:
    """Make sure that the suites of a spec are of the tasks that a run has; Raises InputError: they are not."""
    spec.members(run.read_table("tasks")["task"].to_pylist())


HEADLINE = """
select
    n_demos, method, means.macro_f1, means.accuracy, means.is_above_constant, means.rsd, means.bias_score,
    advised(shown_advice, changed.is_below_majority and means.macro_f1 > means.majority_macro_f1, method) as verdict,
    means.n_tasks, n_demo_sets, n_rows
from label_bias_by_model as means
left join (from label_bias_remedies where against_method = 'none') as changed using (suite, n_demos, method)
where suite = 'all'
order by n_demos, array_position({methods}, method)
"""
"""The query whose rows are the metrics of a whole run."""

LABEL_BIAS = Kind(
    read=_read,
    describe=_describe,
    write=_write,
    extend=_extend,
    stages=lambda run, spec, plan: causal.causal_stages(run, spec, plan, LIKELIHOOD),
    refuse_stopped=refuse_given_up,
    changes=_changes,
    refuse_analysis=_refuse_analysis,
    derive=derive_label_bias,
    page=Deferred("biaseval.report:run_page"),
    headline=lambda spec: HEADLINE,
    needs=lambda spec: [Need("data.lm_eval needs", "harness", ("lm_eval",))] if _lm_eval_tasks(spec) else [],
)
