"""A stage of trainings on Ray Train: groups of workers, each with the base model, side by side.

A group trains one unit after another; several workers of a group share every step. Groups take units from one queue,
the costliest first, so that a slow group, or one without a machine, does not delay the others. Complete units stay,
whatever dies. The current unit of a group that lost a worker starts again after its last checkpoint, if it has any.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from biaseval.environment import amend_environment, read_environment
from biaseval.errors import BiasevalError
from biaseval.execute.budget import HALT, GpuHours
from biaseval.execute.messages import OUTCOMES, PROGRESS, STORAGE, outcome_file, progress_file
from biaseval.execute.resources import Groups, share
from biaseval.execute.tasks import Staged
from biaseval.execute.versions import Versions
from biaseval.progress import say
from biaseval.store import Run
from biaseval.training.deepspeed_config import check_deepspeed
from biaseval.training.recipe import Recipe
from biaseval.units import Done, Unit, missing_units

if TYPE_CHECKING:
    from biaseval.execute.cluster import Cluster
    from biaseval.execute.waiting import Wait
    from biaseval.training.work import Work

logger = logging.getLogger(__name__)

_LOOKS_TO_END = 3
"""So many looks long a group may end by itself when there is nothing left to do."""


@dataclass(frozen=True, kw_only=True)
class Training(Staged):
    """A stage of adapters or models that are trained independently of each other.

    The last file of a unit makes the unit complete. The adapter or model goes to its ``folder``. ``tokens`` of a unit's
    work are its cost.
    """

    recipe: Recipe
    recipes: Mapping[int, Recipe] = field(default_factory=dict)
    """Of units that are trained otherwise, by their number; ``training`` of all of them asks for the same workers."""
    work: Callable[..., Work]
    """Returns in a worker the training of a unit: ``work(run, unit.work, base, **arguments)``."""

    def make(self, run: Run, missing: Sequence[Unit], cluster: Cluster) -> Iterator[Done]:
        """Train the missing units in any order, and yield each when it is complete or given up.

        A unit without checkpoints is given up if a loss or gradient is not finite: only its steps are written, and
        ``is_complete`` of its facts is false.

        Raises:
            InputError: the model cannot be trained, or Ray lacks the resources asked for.
            BiasevalError: training failed, or a loss or gradient of a unit with checkpoints was not finite, or
                ``max_gpu_hours`` are used up. Complete units and the last checkpoint stay.
        """
        import ray

        from biaseval.execute.groups import Job, lead, queued
        from biaseval.execute.holdings import end_leads
        from biaseval.execute.waiting import Wait
        from biaseval.execute.workers import ATTEMPTS, this_node

        check_deepspeed(self.recipe)  # its file may be another than planning saw
        numbers = {unit.number for unit in missing}
        missing = [unit for unit in self.units if unit.number in numbers]  # a training makes all of its files
        run.delete(STORAGE)  # what a killed process left
        self._say_resumed(run, missing)
        resources = cluster.resources()
        groups = share(self.recipe.training, self.execution, len(missing), resources)
        if groups.caution is not None:
            logger.warning("%s %s", self.name, groups.caution)
        most = self.execution.max_gpu_hours
        hours = GpuHours(run, most, groups.n_workers if groups.use_gpu else 0)
        job = Job(run.uri, self.recipe, self.work, self.arguments, groups, self.recipes, is_bounded=most is not None)
        # If workers have their own processes, Ray Train restarts them when one dies; otherwise Ray does.
        held = {"num_cpus": groups.resources_per_worker["CPU"], "max_retries": ATTEMPTS - 1} if groups.is_alone else {}
        leader = lead.options(scheduling_strategy=this_node(), **held)
        queue = queued(missing)
        started = [leader.remote(job, queue, group) for group in range(min(groups.n_groups, len(missing)))]
        wait = Wait(self.name, self.execution, resources)
        ended: list[Done] = []
        stopped: Done | None = None
        try:
            for done in self._ended(run, missing, started, queue, groups, wait):
                hours.add_training(done)
                if self.recipe.checkpoint_steps is not None and not done.facts["is_complete"]:
                    stopped = done
                    continue
                ended.append(done)
                yield done
        finally:
            end_leads(started, ray.get(queue.leaders.remote()))  # those that wait, and after an error all
            run.delete(STORAGE)
            hours.close()
            if ended:
                sittings = [*read_environment(run).get("training", []), self._sitting(ended)]
                amend_environment(run, training=sittings)
        if stopped is not None:
            facts, section = stopped.facts, self.recipe.training.SECTION
            raise BiasevalError(
                f"training stopped at step {facts['n_steps'] - 1}: loss {facts['loss']:.4g}, gradient norm "
                f"{facts['grad_norm']}; lower {section}.learning_rate, or set {section}.precision to float32, in "
                "another --run-dir"
            )
        given_up = {done.unit.number for done in ended if not done.is_complete}
        if hours.is_used_up and any(unit.number not in given_up for unit in missing_units(run, missing)):
            raise hours.error()

    def _ended(
        self, run: Run, missing: Sequence[Unit], started: Sequence[Any], queue: Any, groups: Groups, wait: Wait
    ) -> Iterator[Done]:
        """Yield each unit of which something came, and say how far a training with checkpoints is."""
        import ray

        from biaseval.execute.groups import SECONDS_BETWEEN_LOOKS
        from biaseval.execute.holdings import n_groups_placed
        from biaseval.execute.workers import collected

        left, versions = {outcome_file(unit): unit for unit in missing}, Versions()
        waiting, heard = list(started), {unit.number: 0 for unit in missing}
        n_looks_over = 0
        while waiting and n_looks_over < _LOOKS_TO_END:
            run.guard()
            _, waiting = ray.wait(waiting, num_returns=len(waiting), timeout=SECONDS_BETWEEN_LOOKS)
            self._say_progress(run, left.values(), heard)
            for name in sorted(run.files(OUTCOMES) & left.keys()):
                unit, facts = left.pop(name), run.read_json(name)
                versions.hear(facts.pop("versions"))
                yield Done(unit, tokens=unit.work.get("tokens", 0), facts=facts, busy_s=facts["seconds"])
            if waiting:  # perhaps for a machine, with nothing to do on it
                n_looks_over = n_looks_over + 1 if ray.get(queue.is_over.remote(is_halted=run.has(HALT))) else 0
                leaders = ray.get(queue.leaders.remote())
                n_placed = len(leaders) if groups.is_alone else n_groups_placed(leaders)
                wait.look(groups.ask if n_placed < len(waiting) else None, is_idle=not n_placed)
        collected([led for led in started if led not in waiting], self.recipe.training.SECTION)

    def _say_resumed(self, run: Run, missing: Sequence[Unit]) -> None:
        if self.recipe.checkpoint_steps is None:
            return
        from biaseval.training.checkpoints import newest_checkpoint, place_of

        for unit in missing:
            checkpoint = newest_checkpoint(run, place_of(unit.work))
            if checkpoint is not None:
                planned = f" of {unit.size:,}" if self.noun == "steps" else ""
                say(f"resuming: {_name(unit)}{checkpoint.n_steps:,}{planned} steps are made")

    def _say_progress(self, run: Run, left: Iterable[Unit], heard: dict[int, int]) -> None:
        """Say at which step each training with checkpoints is, if that is new."""
        if self.recipe.checkpoint_steps is None:
            return
        there = run.files(PROGRESS)
        for unit in left:
            if progress_file(unit) not in there:
                continue
            found = run.read_json(progress_file(unit))
            if found["n_steps"] != heard[unit.number]:
                heard[unit.number] = found["n_steps"]
                planned = found.get("n_planned")  # what an older version left lacks it
                step = f"{_name(unit)}step {found['n_steps']:,}{'' if planned is None else f' of {planned:,}'}"
                say(f"{step}, loss {found['loss']:.4f}, {found['seconds']:.1f} s a step")

    def _sitting(self, ended: Sequence[Done]) -> dict[str, Any]:
        """Return the record of this process for ``environment.json``."""
        facts, training = [done.facts for done in ended], self.recipe.training
        n_complete = {f"n_{self.noun}": sum(own["problem"] is None for own in facts)}
        steps = {name: facts[0][name] for name in ("first_step", "n_steps")}
        packing = {"packing": facts[0]["packing"]} if "packing" in facts[0] else {}
        seconds = {name: round(sum(own[name] for own in facts), 3) for name in ("seconds", "step_seconds")}
        size = steps if self.noun == "steps" else n_complete
        return {**size, "workers": training.workers, "zero": training.zero, **packing, **seconds}


def _name(unit: Unit) -> str:
    """Return the name of one of several trainings for messages, with its punctuation."""
    return f"{unit.work['model']}: " if "model" in unit.work else ""
