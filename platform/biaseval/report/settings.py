"""The first blocks of a page, and its last sections: training of adapters, the spec, the environment and the plan."""

from collections.abc import Sequence
from typing import Any

from biaseval.environment import raw_spec, read_environment
from biaseval.report.blocks import Ask, Beside, Figures, Fold, Keys, Section, Sentences, Table, Text
from biaseval.report.charts import Chart, line_chart
from biaseval.store import Run

FEW_NOTES = 3
"""The most plan notes among the cautions; if there are more, they are folded under the settings."""


def first_blocks(kind: str, seen: Figures, table: Table, notes: Sequence[str]) -> list[Any]:
    """Return the blocks of the first section: conclusions beside charts, the main table, and cautions."""
    said = f"select lead, text from {kind}_conclusions where line"
    return [
        Sentences(f"{said} = 1", "headline"),
        Beside(Sentences(f"{said} > 1"), seen),
        table,
        Sentences(f"select lead, text from {kind}_cautions", "care", "Read with care", notes),
    ]


def read_plan(run: Run) -> dict[str, Any]:
    """Return the plan of a run; empty without one."""
    plan: dict[str, Any] = run.read_json("plan.json") if run.has("plan.json") else {}
    return plan


def notes_block(run: Run) -> list[str]:
    """Return the notes of a plan if they are few or of an import, and the number of excluded tasks."""
    plan = read_plan(run)
    notes = list(plan.get("notes") or [])
    is_shown = len(notes) <= FEW_NOTES or "imported" in raw_spec(run)
    n = len(plan.get("left_out") or {})
    left_out = [f"{n:,} task{' is' if n == 1 else 's are'} left out; Settings gives the reasons."] if n else []
    return [*left_out, *(notes if is_shown else [])]


def settings_blocks(run: Run) -> list[Any]:
    """Return the spec, the environment, and the counts and notes of the plan."""
    plan = read_plan(run)
    notes = list(plan.get("notes") or [])
    text = ""
    if "n_prompts" in plan:
        text = (
            f"Planned: {plan['n_prompts']:,} prompts, {plan.get('n_scores') or 0:,} scores, "
            f"about {plan.get('tokens') or 0:,} tokens ({plan.get('tokens_unshared') or 0:,} without sharing prefixes)."
        )
    return [
        Text(text),
        Fold(
            "Spec and environment",
            Keys("The spec, with every default", raw_spec(run)),
            Keys("Environment", read_environment(run)),
        ),
        Fold(f"Notes of the plan ({len(notes)})", Sentences("select '' as text limit 0", further=notes)),
        Fold("Tasks left out", Keys("Task and reason", plan.get("left_out") or {})),
    ]


def training_blocks(place: str, charts: Sequence[Chart]) -> list[Section]:
    """Return the sections on the cost of mitigation and the training of adapters; empty without adapters.

    Args:
        place: the column with the setting.
        charts: the charts of the page; this section shows ``training_loss``.
    """
    loss = [chart for chart in charts if chart.name == "training_loss"]
    if not loss:
        return []
    return [
        Section("costs", "What mitigation needs", Table(
                "Beyond scoring the rows. Prompts: calibration inputs. Tokens: of these inputs, and of the training "
                "examples in every epoch. Seconds: of training as measured, of scoring in proportion to tokens.",
                f"from mitigation_costs order by {place}, method",
                f"""
method; {place}; n_demo_sets|Sets|count; n_prompts|Prompts|count; tokens|Tokens|count;
n_adapters|Adapters|count; trained_parameters|Parameters|count; seconds|Seconds|seconds""",
            ), link="Costs",
        ),
        Section("training", "Training of the adapters", Table(
                "Loss in nats per target token (label and EOS), mean over adapters. Not falling: adapters whose "
                "loss is not lower at the last step than at the first; each step has different examples.",
                f"from training_by_setting order by {place}",
                f"""
{place}; n_adapters|Adapters|count; n_steps|Steps of each|count; first_loss|Loss, first step|rate;
last_loss|Loss, last step|rate; n_not_falling|Not falling|count""",
            ), Figures(loss, "Training loss by optimizer step, mean over adapters. Shaded: the middle 80 %."),
            link="Training",
        ),
    ]  # fmt: skip


def loss_charts(ask: Ask) -> list[Chart]:
    """Return the chart of the training loss by step; none without training."""
    rows = ask("from training_by_step order by step")
    if not rows:
        return []
    points = [
        {"x": row["step"] + 1, "y": row["mean_loss"], "low": row["low"], "high": row["high"], "series": "loss"}
        for row in rows
    ]
    title, axes = "Training loss (lower is better)", ("optimizer step", "nats per token")
    return [line_chart("training_loss", points, title=title, axes=axes, is_ordinal=len(rows) < 10)]
