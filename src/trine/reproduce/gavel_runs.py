"""Carries out the simulations of Gavel's experiments: what is asked, in processes, and what is kept of each run.

A run that fails is an outcome like any other, so that one failure does not lose the rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from trine.core.errors import InputError
from trine.core.process_pool import Done, work_through
from trine.core.reason import Why
from trine.core.result import JobRecord, RunResult, Segment, Summary
from trine.inputs.preset import load_preset
from trine.sim.scenario import Scenario, run

Key = tuple[Any, ...]
Asks = dict[Key, Scenario]
MOST_WORDS = 120
"""Letters of a failure that are told."""


@dataclass(frozen=True)
class Contender:
    """A policy of the authors' code in our words."""

    label: str
    policy: str
    values: Mapping[str, Any] = field(default_factory=dict)
    pairs: bool = False
    """Needs the rates of pairs of jobs."""


ALONE: dict[str, Any] = {"space_sharing": False}
BLIND: dict[str, Any] = {"space_sharing": False, "aware": False}
CONTENDERS: dict[str, Contender] = {
    "isolated": Contender("isolated", "isolated"),
    "max_min_fairness": Contender("max-min-fairness, not aware", "max-min-fairness", BLIND),
    "max_min_fairness_perf": Contender("max-min-fairness", "max-min-fairness", ALONE),
    "max_min_fairness_packed": Contender(
        "max-min-fairness, space sharing", "max-min-fairness", {"space_sharing": True}, pairs=True
    ),
    "max_min_fairness_water_filling_perf": Contender("hierarchical, no entities", "hierarchical", ALONE),
    "finish_time_fairness": Contender("finish-time-fairness, not aware", "finish-time-fairness", BLIND),
    "finish_time_fairness_perf": Contender("finish-time-fairness", "finish-time-fairness", ALONE),
    "gandiva": Contender("gandiva", "gandiva", pairs=True),
    "fifo": Contender("fifo, not aware", "fifo", BLIND),
    "fifo_perf": Contender("fifo", "fifo", {**ALONE, "aware": True}),
    "max_sum_throughput_perf": Contender("max-throughput", "max-throughput", ALONE),
    "min_total_duration": Contender("makespan, not aware", "makespan", BLIND),
    "min_total_duration_perf": Contender("makespan", "makespan", ALONE),
    "min_total_duration_packed": Contender("makespan, space sharing", "makespan", {"space_sharing": True}, pairs=True),
    "allox": Contender("allox", "allox"),
}
"""By the name of the policy in the authors' code."""


def scenario(preset: str, contender: Contender, *, compat: bool, throughputs: str, **given: Any) -> Scenario:
    """The contender in the setting of a preset, with the quirks of the authors' code or without.

    ``given`` are fields of the scenario; ``values`` among them come on top of those of the preset.
    """
    found = load_preset(preset)
    settings = {name: value for name, value in found.settings.items() if name != "compat"}
    values = settings | dict(contender.values) | given.pop("values", {})
    if compat:
        values["compat"] = "authors"
    jobs = {} if "trace" in given else {"workload": found.workload}
    told = {"cluster": found.cluster, "placement": found.placement, **jobs, **given}
    return Scenario(policy=contender.policy, throughputs=throughputs, authors=found.authors, values=values, **told)


# -- outcomes --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Outcome:
    """What is kept of a run, or why there is none."""

    failure: str = ""
    summary: Summary | None = None
    jobs: list[JobRecord] = field(default_factory=list)
    finishes_s: dict[str, float] = field(default_factory=dict)
    """Of every job that ended, measured or not."""
    segments: list[Segment] = field(default_factory=list)

    @property
    def jct_h(self) -> float:
        assert self.summary is not None
        return self.summary.jct_mean_s / 3600

    @property
    def makespan_h(self) -> float:
        assert self.summary is not None
        return self.summary.makespan_s / 3600

    @property
    def cpu_s(self) -> float:
        assert self.summary is not None
        return self.summary.sim_cpu_s


Outcomes = Mapping[Key, Outcome]


def first_failure(runs: Iterable[Outcome]) -> Outcome | None:
    """A run that there is no result of; nothing if all went well."""
    return next((found for found in runs if found.failure), None)


@dataclass(frozen=True)
class Keep:
    """What of a run is worth sending back from its process."""

    finishes: bool = False
    segments: bool = False


def attempt(asked: Scenario, keep: Keep = Keep()) -> Outcome:  # noqa: B008  # frozen
    """Run it; whatever goes wrong in the simulator is told. Mistakes in the input are the user's and are raised."""
    try:
        result = run(asked, keep_segments=keep.finishes or keep.segments)
    except InputError:
        raise
    except Exception as error:
        return Outcome(f"{type(error).__name__}: {error}"[:MOST_WORDS])
    return _kept(result, keep)


def _kept(result: RunResult, keep: Keep) -> Outcome:
    finishes = {s.job_id: s.end_s for s in result.segments if s.ended == Why.FINISHED.value} if keep.finishes else {}
    return Outcome("", result.summary, result.jobs, finishes, result.segments if keep.segments else [])


def run_all(asks: Asks, keep: Mapping[Key, Keep], workers: int, done: Done) -> dict[Key, Outcome]:
    """All runs, in the order of ``asks`` whatever the number of workers; the first mistake in the input ends all."""
    todo = [(asked, keep.get(key, Keep())) for key, asked in asks.items()]
    return dict(zip(asks, work_through(_attempt, todo, workers, done, first_here=False), strict=True))


def _attempt(item: tuple[Scenario, Keep]) -> Outcome:
    return attempt(*item)
