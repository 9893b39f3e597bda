"""What was measured of training, as Markdown tables."""

import statistics
from typing import Any

from tests.bench.training.steps import N_CHECKED, STEPS_SORTED


def markdown(report: dict[str, Any]) -> str:
    """Return all that was measured as tables, with what they were measured on below."""
    return "\n".join([*_ways_lines(report), "", *_around_lines(report), "", *_cut_lines(report), "", *_on(report)])


def _ways_lines(report: dict[str, Any]) -> list[str]:
    lines = [
        "## Optimizer steps",
        "",
        "| layers x width | threads | way | s per step | windows/s | of what ran, padding | time, compared | "
        "CPU s per step | CPU time, compared |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {own['shape']} | {own['threads']} | {own['way']} | {own['s_per_step']:.3f} | {own['windows_per_s']:.1f} | "
        f"{own['padding']:.1%} | {_spread(own['times'])} | {own['cpu_s_per_step']:.3f} | "
        f"{_spread(own['cpu_times'])} |"
        for own in report["records"]
    ]
    difference = max(report["largest_difference"].values())
    return [
        *lines,
        "",
        f"Each way makes {report['n_steps']} steps of {report['batch_size']} windows in a round, one epoch of the same "
        f"windows; of {report['n_rounds']} rounds, in which the ways take turns, the median. Compared are a way's "
        "seconds with those of biaseval in the same round, where both are grouped by length with those of biaseval "
        "grouped by length; median, least and largest. CPU time is the process's own, of all threads, and depends less "
        "on what else runs. Times begin with the first batch: models, data and Trainer's "
        "own preparation are there before.",
        "",
        "biaseval and Trainer are shown the same windows in the same steps. On a CPU one worker of biaseval cuts a "
        "step, from the longest window on, into passes through the model where that saves more padding than a pass "
        "costs; Trainer makes one pass. Grouped by length each has its own steps, which "
        f"both find by sorting the windows of up to {STEPS_SORTED} steps. That changes which windows make a step "
        "together, and so what is trained. Trainer has its default optimizer, "
        f"{report['their_optimizer']}; its loss lets padding take part. With all padded and no dropout, losses of the "
        f"two differ by at most {difference:.1g} over {N_CHECKED} steps of the same windows.",
    ]


def _spread(times: list[float] | None) -> str:
    return "" if times is None else f"{statistics.median(times):.2f} ({min(times):.2f} to {max(times):.2f})"


def _around_lines(report: dict[str, Any]) -> list[str]:
    own = report["around"]
    return [
        "## Around the steps",
        "",
        "| layers x width | threads | steps | s, unit | s, steps | s, evaluations | outside both | a batch, ms |",
        "|---|---|---|---|---|---|---|---|",
        f"| {own['shape']} | {own['threads']} | {own['n_steps']} | {own['seconds']:.1f} | {own['step_seconds']:.1f} | "
        f"{own['evaluation_seconds']:.1f} | {own['share']:.1%} | {1000 * own['batch_s']:.2f} |",
        "",
        f"One reader as a run trains it, out of {own['n_windows']:,} windows, from their parts to the reader that is "
        f"kept; every {report['unit_every']} steps a checkpoint, and an evaluation whose weights are kept if they are "
        "better. Making the batch of a step is part of the step.",
    ]


def _cut_lines(report: dict[str, Any]) -> list[str]:
    cut = report["cut"]
    return [
        "## Cutting questions into windows",
        "",
        "| questions | parts | windows | s | questions/s | MiB, begun | MiB, highest of the first parts | of all |",
        "|---|---|---|---|---|---|---|---|",
        f"| {cut['n_questions']:,} | {cut['n_parts']} | {cut['n_windows']:,} | {cut['seconds']:.1f} | "
        f"{cut['n_questions'] / cut['seconds']:.0f} | {cut['begun_mib']:.0f} | {cut['first_mib']:.0f} | "
        f"{cut['peak_mib']:.0f} |",
        "",
        f"As a worker of a run does it, part by part, in a process of its own; the first parts are {cut['first_parts']}"
        ". Memory is the highest resident one of the process so far.",
    ]


def _on(report: dict[str, Any]) -> list[str]:
    machine, environment = report["machine"], report["environment"]
    versions, hardware = environment["versions"], environment["hardware"]
    shared = ""
    if machine["others"] is not None:
        shared = (
            f"; meanwhile other processes held {machine['others']:.2f} of its cores and other machines "
            f"{machine['stolen']:.2f}"
        )
    load = "" if machine["load"] is None else f", load average {machine['load']:.1f} at the beginning"
    return [
        "## Measured on",
        "",
        f"Questions: {report['questions']}. BERTs of random weights, float32. {hardware['cpu']}, "
        f"{hardware['n_cores']} cores{load}{shared}. Python {environment['python']}, torch {versions['torch']}, "
        f"transformers {versions['transformers']}, tokenizers {versions['tokenizers']}, pyarrow {versions['pyarrow']}.",
    ]
