"""The experiment runner: what the experiments of a paper simulate, in processes, and what is kept of each run.

All that is to be simulated is collected first and run in one go, equal scenarios once; then every experiment judges
what came out. A run that fails is an outcome like any other, so that one failure does not lose the rest.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Generic, TypeVar

import numpy as np

from trine.core.cluster import Tier
from trine.core.errors import InputError
from trine.core.process_pool import Done, work_through
from trine.core.reason import Why
from trine.core.result import JobRecord, Segment, Summary
from trine.inputs.preset import load_preset
from trine.inputs.yaml_reader import read_mapping
from trine.report.provenance import FILE_KEYS, InputFile, input_files
from trine.reproduce.checks import Check, RunFailed
from trine.reproduce.reproduction import Part, Reproduction
from trine.sim.scenario import Scenario, run

HOUR_S = 3600.0
LONGEST_FAILURE = 120
"""Letters of a failure that are shown."""
_SEVERAL_NODES = (Tier.RACK.label, Tier.NETWORK.label)

Key = tuple[Any, ...]
Runs = dict[Key, Scenario]
"""What an experiment wants simulated, by keys of its own."""
Progress = Callable[[int], Done]
"""Given the number of runs; gives back what is called after each."""


# -- contenders ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Contender:
    """A policy with its placement and the settings of both. Without a placement, that of the scenario."""

    label: str
    policy: str
    placement: str = ""
    values: Mapping[str, Any] = field(default_factory=dict)
    pairs: bool = False
    """Needs the rates of pairs of jobs."""

    def on(self, base: Scenario) -> Scenario:
        """The scenario with this contender; its settings come on top."""
        values = base.values | dict(self.values)
        return replace(base, policy=self.policy, placement=self.placement or base.placement, values=values)


def contenders_of(block: Mapping[str, Any]) -> dict[str, Contender]:
    """The contenders of a YAML block by name: ``{label, policy, placement, set, pairs}``, of which only the policy must
    be given."""
    return {
        name: Contender(
            given.get("label", name),
            given["policy"],
            given.get("placement", ""),
            given.get("set", {}),
            given.get("pairs", False),
        )
        for name, given in block.items()
        if name != "source"
    }


def preset_scenario(preset: str, *, compat: bool, values: Mapping[str, Any] | None = None, **given: Any) -> Scenario:
    """The setting of a preset, with the quirks of the authors' code or without, for any contender.

    ``values`` come on top of the settings of the preset, ``given`` are fields of the scenario in place of its own.
    """
    found = load_preset(preset)
    settings = {name: value for name, value in found.settings.items() if name != "compat"}
    settings |= dict(values or {}) | ({"compat": "authors"} if compat else {})
    fields = {name: getattr(found, name) for name in ("cluster", "policy", "placement", "format", "throughputs")}
    jobs = {} if "trace" in given else {"workload": found.workload}
    return Scenario(authors=found.authors, values=settings, **(fields | jobs | given))


# -- outcomes --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Outcome:
    """What is kept of a run, or why there is none: reading a figure of a run that failed raises ``RunFailed``.

    Times in hours, communication and use in GPU-hours.
    """

    failure: str = ""
    whole: Summary | None = None
    records: list[JobRecord] = field(default_factory=list)
    segments: list[Segment] = field(default_factory=list)
    node_gpus: int = 1
    """GPUs of the largest node."""

    @property
    def summary(self) -> Summary:
        if self.whole is None:
            raise RunFailed(self.failure)
        return self.whole

    @property
    def jobs(self) -> list[JobRecord]:
        """The measured jobs."""
        if self.failure:
            raise RunFailed(self.failure)
        return self.records

    @property
    def jct_h(self) -> float:
        return self.summary.jct_mean_s / HOUR_S

    @property
    def jct_p95_h(self) -> float:
        return self.summary.jct_p95_s / HOUR_S

    @property
    def jct_p99_h(self) -> float:
        return self.summary.jct_p99_s / HOUR_S

    @property
    def makespan_h(self) -> float:
        return self.summary.makespan_s / HOUR_S

    @property
    def wait_p95_h(self) -> float:
        return self.summary.wait_p95_s / HOUR_S

    @property
    def wait_p99_h(self) -> float:
        return float(np.quantile([job.wait_s for job in self.jobs], 0.99)) / HOUR_S

    @property
    def utilization(self) -> float:
        return self.summary.utilization

    @property
    def gpu_h(self) -> float:
        """Held by jobs."""
        return sum((job.jct_s - job.wait_s) * job.gpus for job in self.jobs) / HOUR_S

    @property
    def preemptions(self) -> float:
        """Per job."""
        return self.summary.preemptions / self.summary.jobs

    @property
    def moves(self) -> float:
        """Per job."""
        return self.summary.migrations / self.summary.jobs

    @property
    def stops_and_moves(self) -> float:
        """Per job."""
        return self.preemptions + self.moves

    @property
    def rho_mean(self) -> float:
        """Finish-time fairness: JCT over that with an equal share of the cluster."""
        return self.summary.rho_mean

    @property
    def rho_max(self) -> float:
        """Of the job that fares worst."""
        return self.summary.rho_max

    @property
    def comm_h(self) -> float:
        """GPU-hours of communication that compute does not hide, of all jobs."""
        return self.summary.comm_gpu_s / HOUR_S

    @property
    def comm_node_h(self) -> float:
        """The part of jobs that fit one node."""
        return sum(job.comm_gpu_s for job in self.jobs if job.gpus <= self.node_gpus) / HOUR_S

    @property
    def comm_spread_h(self) -> float:
        """Of that, the part of jobs that ever ran on more than one node: what is left of ``comm_node_h`` is inside
        nodes, where no placement can avoid it."""
        spread = (job for job in self.jobs if job.gpus <= self.node_gpus and job.tier in _SEVERAL_NODES)
        return sum(job.comm_gpu_s for job in spread) / HOUR_S

    @property
    def tiers(self) -> tuple[float, float, float]:
        """Shares of gangs by the widest tier they ever ran at: node, rack, network; zeros where there is no gang."""
        found = Counter(job.tier for job in self.jobs if job.gpus > 1)
        gangs = max(1, found.total())
        node, rack, network = (found[tier.label] / gangs for tier in (Tier.NODE, Tier.RACK, Tier.NETWORK))
        return node, rack, network

    @property
    def cost(self) -> float:
        """Of all GPUs held, at the prices of the cluster."""
        return self.summary.cost

    @property
    def missed_deadlines(self) -> float:
        """Fraction of the deadlines."""
        return self.summary.deadlines_missed / max(self.summary.deadlines, 1)

    @property
    def finishes_s(self) -> dict[str, float]:
        """Of every job that ended, measured or not; known where segments are kept."""
        if self.failure:
            raise RunFailed(self.failure)
        return {s.job_id: s.end_s for s in self.segments if s.ended == Why.FINISHED.value}


Outcomes = Mapping[Key, Outcome]


def known_points(
    xs: Sequence[float], outcomes: Sequence[Outcome], metric: str | Callable[[Outcome], float]
) -> tuple[list[float], list[float]]:
    """``xs`` and figures of the runs that did not fail, for a line of a plot."""
    there = [(x, found) for x, found in zip(xs, outcomes, strict=True) if not found.failure]
    ys = [getattr(found, metric) if isinstance(metric, str) else metric(found) for _, found in there]
    return [x for x, _ in there], ys


def attempt(scenario: Scenario, *, segments: bool = False) -> Outcome:
    """Run it; errors of the simulator become a failed outcome. Mistakes in the input are the user's and are raised."""
    try:
        result = run(scenario, keep_segments=segments)
    except InputError:
        raise
    except Exception as error:
        return Outcome(f"{type(error).__name__}: {error}"[:LONGEST_FAILURE])
    return Outcome("", result.summary, result.jobs, result.segments, result.cluster.gpus_per_node)


def run_all(
    runs: Runs, with_segments: Collection[Key] = (), workers: int = 0, progress: Progress = lambda _: lambda: None
) -> dict[Key, Outcome]:
    """All runs by their keys, whatever the number of workers; the first mistake in the input ends all.

    Equal scenarios under different keys are simulated once, with their segments if one of the keys wants them.
    """
    kept = {repr(runs[key]) for key in with_segments if key in runs}
    different = {repr(scenario): scenario for scenario in runs.values()}
    todo = [(scenario, text in kept) for text, scenario in different.items()]
    found = work_through(_attempt, todo, workers, progress(len(todo)))
    by_text = dict(zip(different, found, strict=True))
    return {key: by_text[repr(scenario)] for key, scenario in runs.items()}


def _attempt(item: tuple[Scenario, bool]) -> Outcome:
    return attempt(item[0], segments=item[1])


# -- experiments and papers ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Inputs:
    """What the experiments of a paper read. A paper with public data has a subclass that knows where its files lie."""

    root: Path
    """Holds ``traces/`` and ``hardware/``; ``reference/`` perhaps lies beside it."""
    scratch: Path = field(default_factory=Path)
    """A folder for files that only the runs need."""
    figures: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """The paper's YAML file."""
    quick: bool = False


def find_root(folder: str, marker: str) -> Path:
    """``folder`` or its ``data``, whichever holds ``marker``."""
    for root in (Path(folder), Path(folder) / "data"):
        if (root / marker).is_dir():
            return root
    raise InputError("--data", f"no {marker} below {folder}", "the folder that holds traces/ and hardware/")


Given = TypeVar("Given", bound=Inputs)


class Experiment(ABC, Generic[Given]):
    """Says what to simulate, and judges what came out of it."""

    name: str

    def runs(self, inputs: Given) -> Runs:  # noqa: ARG002 - for those that override it
        """What to simulate; nothing, unless it says otherwise."""
        return {}

    def with_segments(self) -> Collection[Key]:
        """Runs whose segments and finish times are needed."""
        return ()

    @abstractmethod
    def judge(self, inputs: Given, outcomes: Outcomes) -> Part:
        """What came out, from the outcomes of all runs of the paper."""


@dataclass(frozen=True)
class Paper(Generic[Given]):
    """A paper: where its figures are, how its inputs are found, and its experiments in the order of the page."""

    title: str
    figures: Path
    inputs: Callable[[str, Path, Mapping[str, Any], bool], Given]
    """Of the folder with the public data, a folder for own files, the figures, and whether the run is a quick one."""
    experiments: Callable[[Given], Sequence[Experiment[Given]]]
    notes: Callable[[Given], Sequence[str]]
    grouped: bool = True

    def reproduce(
        self,
        folder: str = "",
        *,
        quick: bool = False,
        workers: int = 0,
        progress: Progress = lambda _: lambda: None,
        figures: Mapping[str, Any] | None = None,
        experiments: Sequence[Experiment[Given]] | None = None,
        only: Sequence[str] = (),
    ) -> Reproduction:
        """Run all experiments, or those given, or of these ``only`` those whose names begin so.

        ``quick`` leaves out most seeds and points of the sweeps.
        """
        known = read_mapping(self.figures).plain() if figures is None else figures
        with TemporaryDirectory() as scratch:
            inputs = self.inputs(folder, Path(scratch), known, quick)
            chosen = self.experiments(inputs) if experiments is None else experiments
            chosen = chosen_by_name(chosen, only)
            runs: Runs = {}
            for experiment in chosen:
                runs |= experiment.runs(inputs)
            kept = [key for experiment in chosen for key in experiment.with_segments()]
            outcomes = run_all(runs, kept, workers, progress)
            parts = [_judged(experiment, inputs, outcomes) for experiment in chosen]
            files = _files_read(runs, inputs.scratch)
            return Reproduction(self.title, parts, self.notes(inputs), self.grouped, files)


def _files_read(runs: Runs, scratch: Path) -> list[InputFile]:
    """The files that the runs name, each once, without those made for them."""
    named = {(key, getattr(s, key)) for s in runs.values() for key in FILE_KEYS if isinstance(getattr(s, key), str)}
    found = {file.path: file for key, value in sorted(named) for file in input_files({key: value})}
    return [found[path] for path in sorted(found) if not Path(path).is_relative_to(scratch)]


def chosen_by_name(experiments: Sequence[Experiment[Given]], only: Sequence[str]) -> Sequence[Experiment[Given]]:
    """Those whose names begin with one of these texts, in the order of the page; all if none is given."""
    begins = tuple(text.casefold() for text in only)
    names = dict.fromkeys(experiment.name for experiment in experiments)
    for given, text in zip(only, begins, strict=True):
        if not any(name.casefold().startswith(text) for name in names):
            raise InputError("--only", f"no experiment begins with {given!r}", f"one of: {'; '.join(names)}")
    return [each for each in experiments if not begins or each.name.casefold().startswith(begins)]


def _judged(experiment: Experiment[Given], inputs: Given, outcomes: Outcomes) -> Part:
    """Experiments whose figures all hang together need not look at failures themselves."""
    try:
        return experiment.judge(inputs, outcomes)
    except RunFailed as failure:
        return Part([Check(experiment.name, "all figures", f"failed: {failure}", held=False)])
