"""Dally's experiments together: why placement matters, policies side by side, the tuner, and where waiting pays.

Only the abstract of the paper is known. The world, the jobs, the rules and the bands are a design of this project, so
the published claims stand beside our figures and are not what they are held to.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from trine.core.process_pool import Done, work_through
from trine.inputs.yaml_reader import read_mapping
from trine.reproduce import dally_sweep, dally_tuner
from trine.reproduce.dally_bands import Results, bands, check, gains_of, table_of, without_embeddings_of
from trine.reproduce.dally_runs import ALWAYS, AUTO, CONTENDERS, SKEW, Ask, Contender, measure
from trine.reproduce.dally_settings import Setting, World, philly, philly_trace, prototypes, without_embeddings
from trine.reproduce.dally_sweep import Point
from trine.reproduce.dally_why import why
from trine.reproduce.panels import Found, PlottedReproduction

PAPER = "Dally (arXiv 2401.16492)"
FIGURES = Path(__file__).parent / "dally.yaml"


@dataclass(frozen=True)
class Effort:
    """How many seeds each part gets."""

    seeds: int = 10
    tuner_seeds: int = 5
    sweep_seeds: int = 3
    quick: bool = False


FULL_EFFORT, QUICK_EFFORT = Effort(), Effort(2, 1, 1, quick=True)


@dataclass(frozen=True)
class Plan:
    """All scenarios, by what they are for."""

    compared: list[Setting]
    """Every policy side by side."""
    tuned: list[Setting]
    """The same with fewer seeds, for the sweep of timers."""
    dense: list[Setting]
    points: list[Point]

    @classmethod
    def of(cls, world: World, trace: Path | None, effort: Effort) -> Plan:
        compared = prototypes(world, effort.seeds) + (philly(world, trace, effort.seeds) if trace else [])
        return cls(
            compared,
            [setting.first(effort.tuner_seeds) for setting in compared],
            without_embeddings(world, effort.sweep_seeds),
            dally_sweep.points(world, effort.quick, effort.sweep_seeds),
        )

    def asks(self) -> dict[Key, Ask]:
        """All runs by scenario, policy and seed."""
        few = {name: CONTENDERS[name] for name in (SKEW, ALWAYS, AUTO)}
        swept = {name: CONTENDERS[name] for name in dally_sweep.SWEPT}
        parts = [
            *((setting, CONTENDERS) for setting in self.compared),
            *((setting, dally_tuner.OTHERS) for setting in self.tuned),
            *((setting, few) for setting in self.dense),
            *((point.setting, swept) for point in self.points),
        ]
        return {key: ask for setting, contenders in parts for key, ask in _of(setting, contenders).items()}

    def judge(self, results: Results, figures: dict[str, Any]) -> list[Found]:
        """What came out, in the order of the page."""
        return [
            *_scenarios(results, self.compared, figures),
            Found([], tables=[without_embeddings_of(results, self.dense)]),
            dally_tuner.judge(results, self.tuned, figures),
            dally_sweep.judge(results, self.points),
        ]


def reproduce(
    folder: str = "",
    *,
    quick: bool = False,
    workers: int = 0,
    progress: Callable[[int], Done] = lambda _: lambda: None,
    figures: dict[str, Any] | None = None,
    effort: Effort | None = None,
) -> PlottedReproduction:
    """Run all scenarios; ``quick`` takes fewer seeds and points. ``progress`` is given the number of runs and gives
    back what is called after each. ``folder`` holds the public traces; without them the Philly trace is left out."""
    told = read_mapping(FIGURES).plain() if figures is None else figures
    trace = philly_trace(folder, told["philly"]["file"])
    with TemporaryDirectory() as scratch:
        world = World(Path(scratch), told)
        plan = Plan.of(world, trace, effort or (QUICK_EFFORT if quick else FULL_EFFORT))
        results = _run_all(plan.asks(), workers, progress)
        parts = [why(world), *plan.judge(results, told)]
    return PlottedReproduction.of(PAPER, parts, NOTES if trace else [*NOTES, WITHOUT_DATA])


Key = tuple[str, str, int]


def _of(setting: Setting, contenders: dict[str, Contender]) -> dict[Key, Ask]:
    return {(setting.name, n, seed): setting.ask(c, seed) for n, c in contenders.items() for seed in setting.seeds}


def _run_all(asks: dict[Key, Ask], workers: int, progress: Callable[[int], Done]) -> Results:
    """Equal runs of different parts are simulated once."""
    different = list({repr(ask): ask for ask in asks.values()}.values())
    found = work_through(measure, different, workers, progress(len(different)))
    by_text = dict(zip(map(repr, different), found, strict=True))
    return {key: by_text[repr(ask)] for key, ask in asks.items()}


def _scenarios(results: Results, settings: list[Setting], figures: dict[str, Any]) -> list[Found]:
    """Policies side by side; bands where the network is congested."""
    return [
        Found(
            [check(band, results, setting) for band in bands(figures)] if setting.congested else [],
            tables=[table_of(results, setting), gains_of(results, setting)],
        )
        for setting in settings
    ]


WITHOUT_DATA = "The Philly trace was skipped: --data DIR must name the folder that holds traces/philly_flat."
NOTES = [
    "Of the paper only the abstract is known. Cluster, links, jobs, rules and bands are ours: the published claims "
    "(makespan up to 69 % lower, 68 % on average; JCT up to 83 %; communication up to 98 %) belong to another setting.",
    "Differences are paired by seed, relative, with 95 % intervals of Student's t; 'best' is the seed with the largest "
    "gain.",
    "Communication is GPU-hours in which GPUs wait for the network. Tiers are the widest at which a gang ever ran. "
    "'Spread' is the part of jobs that fit one node and ever ran on several; seeds in which the other policy spreads "
    "none are left out of its differences. It is not judged.",
    "Philly: stretches of consecutive jobs of a virtual cluster with drawn models; stretches of one virtual cluster "
    "may overlap, so that their intervals are too narrow. The sizes of the clusters are ours.",
]
