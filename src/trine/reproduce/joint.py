"""The trine policy beside its ancestors: main table, bound, each difference alone, ablation, sweeps, their own grounds.

There is no paper: the worlds and the bars are a design of this project (``joint.yaml``). What the prototype of the
policy had in the same worlds stands beside our figures.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trine.report.text import number
from trine.reproduce.experiment import Contender, Experiment, Outcomes, Paper, Runs
from trine.reproduce.joint_bound import HowFarFromOptimal
from trine.reproduce.joint_settings import (
    KNOWN,
    LEARNED,
    Axis,
    JointInputs,
    gavel_setting,
    joint_inputs,
    pal_setting,
    static_setting,
    world_setting,
)
from trine.reproduce.joint_worlds import COLUMNS, COMPARED, VARIANTS, AgainstAll, percent
from trine.reproduce.paired_comparison import Band, PairedComparison, Setting, SideBySide
from trine.reproduce.reproduction import Panel, Part, ResultTable

# -- what each part is worth -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Ablation(Experiment[JointInputs]):
    """The policy without one of its parts, or without a part of what it knows."""

    setting: Setting
    name: str = "ablation"

    def contenders(self, inputs: JointInputs) -> dict[str, Contender]:
        """The whole policy is among them, by the names of the main table."""
        found = inputs.contenders(VARIANTS)
        for variant in VARIANTS:
            whole = found[variant]
            for part, values in self._parts(inputs).items():
                name = f"{variant}, {part}"
                found[name] = Contender(name, whole.policy, whole.placement, {**whole.values, **values})
        return found

    def _parts(self, inputs: JointInputs) -> dict[str, Mapping[str, Any]]:
        parts = {name: values for name, values in inputs.figures["ablation"].items() if name != "source"}
        return {name: parts[name] for name in inputs.figures["quick"]["ablation"]} if inputs.quick else parts

    def runs(self, inputs: JointInputs) -> Runs:
        return self.setting.runs(self.contenders(inputs))

    def judge(self, inputs: JointInputs, outcomes: Outcomes) -> Part:
        found = PairedComparison(outcomes)
        rows, parts = [], list(self._parts(inputs))
        for variant in VARIANTS:
            rows += [self._row(found, variant, f"{variant}, {part}") for part in parts]
        # Known run times against learned ones: what not knowing them costs.
        rows.append(self._row(found, KNOWN, LEARNED))
        title = f"Ablation: {self.setting.name}, {len(self.setting.seeds)} seeds, over the whole policy"
        header = ("", "JCT %", "makespan %", "rho max", "stops and moves/job")
        return Part([], [self._panel(found, parts)], [ResultTable(title, header, rows)])

    def _row(self, found: PairedComparison, whole: str, name: str) -> tuple[str, ...]:
        changes = [percent(found.difference(self.setting, name, whole, figure)) for figure in ("jct_h", "makespan_h")]
        means = [number(found.mean(self.setting, name, figure), 3) for figure in ("rho_max", "stops_and_moves")]
        return (name, *changes, *means)

    def _panel(self, found: PairedComparison, parts: Sequence[str]) -> Panel:
        across = [float(i) for i in range(len(parts))]
        lines = [
            (v, across, [found.difference(self.setting, f"{v}, {part}", v, "jct_h").mean for part in parts])
            for v in VARIANTS
        ]
        return Panel(
            "Ablation: what is lost without each part", "", "JCT over the whole policy's (%)", lines, list(parts)
        )


# -- where it pays ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sweep(Experiment[JointInputs]):
    """Over load, restart cost, prediction error and size of nodes; all contenders have the same wrong predictions."""

    axes: Sequence[Axis]
    name: str = "sweeps"

    def runs(self, inputs: JointInputs) -> Runs:
        chosen = inputs.contenders(inputs.figures["sweeps"]["contenders"])
        return {
            key: run for axis in self.axes for x in axis.points for key, run in axis.at(inputs, x).runs(chosen).items()
        }

    def judge(self, inputs: JointInputs, outcomes: Outcomes) -> Part:
        found = PairedComparison(outcomes)
        parts = [self._axis(inputs, found, axis) for axis in self.axes]
        return Part([], [panel for panel, _ in parts], [table for _, table in parts])

    def _axis(self, inputs: JointInputs, found: PairedComparison, axis: Axis) -> tuple[Panel, ResultTable]:
        names: list[str] = inputs.figures["sweeps"]["contenders"]
        settings = [axis.at(inputs, x) for x in axis.points]
        mean_h = {name: [found.mean(s, name, "jct_h") for s in settings] for name in names}
        rows = [
            (f"{x:g}", *(f"{mean_h[name][i]:.2f}" for name in names), *self._gains(inputs, found, settings[i]))
            for i, x in enumerate(axis.points)
        ]
        header = (axis.title, *names, f"{LEARNED} : best without run times, %", f"{KNOWN} : best, %", "stops and moves")
        lines = [(name, list(axis.points), y) for name, y in mean_h.items()]
        title = f"Sweep: JCT by {axis.name}"
        table = ResultTable(f"{title}, {len(settings[0].seeds)} seeds", header, rows)
        return Panel(title, axis.title, "Average JCT (h)", lines), table

    def _gains(self, inputs: JointInputs, found: PairedComparison, setting: Setting) -> list[str]:
        """Against the best per seed of the other contenders, with the stops and moves of both variants."""
        others = [name for name in inputs.figures["sweeps"]["contenders"] if name not in VARIANTS]
        with_run_times = set(inputs.group(["ancestors, known", "combinations, known"]))
        learned = found.difference(setting, LEARNED, [name for name in others if name not in with_run_times], "jct_h")
        known = found.difference(setting, KNOWN, others, "jct_h")
        stops = [number(found.mean(setting, name, "stops_and_moves"), 2) for name in VARIANTS]
        return [percent(learned), percent(known), " / ".join(stops)]


# -- the ancestors' own grounds --------------------------------------------------------------------------------------


def own_grounds(inputs: JointInputs) -> list[Experiment[Any]]:
    """PAL's workloads where they are at hand, Gavel's continuous jobs and its batch."""
    return [*_pal(inputs), *_gavel(inputs), *_static(inputs)]


def _side_by_side(
    inputs: JointInputs, setting: Setting, ground: Mapping[str, Any], ours: str, bands: Any
) -> SideBySide:
    contenders = inputs.contenders(ground["contenders"], ground.get("more"))
    judged = [Band.of(ours, given) for given in bands]
    return SideBySide(setting.name, setting, contenders, ours, ours, judged, COLUMNS, COMPARED)


def _pal(inputs: JointInputs) -> list[SideBySide]:
    if not inputs.has_pal:
        return []
    ground = inputs.figures["pal"]
    return [_side_by_side(inputs, pal_setting(inputs), ground, LEARNED, ground["bands"])]


def _gavel(inputs: JointInputs) -> list[SideBySide]:
    ground = inputs.figures["gavel"]
    loads = ground["quick"] if inputs.quick else ground["jobs_per_h"]
    return [
        _side_by_side(inputs, gavel_setting(inputs, load), ground, variant, bands)
        for load in loads
        for variant, bands in ground["bands"].items()
    ]


def _static(inputs: JointInputs) -> list[SideBySide]:
    ground = inputs.figures["static"]
    counts = ground["quick"] if inputs.quick else ground["jobs"]
    return [
        _side_by_side(inputs, static_setting(count), ground, "trine, makespan", ground["bands"]) for count in counts
    ]


# -- the page --------------------------------------------------------------------------------------------------------


def experiments(inputs: JointInputs) -> list[Experiment[Any]]:
    """All, in the order of the page."""
    figures = inputs.figures
    main = world_setting(inputs, figures["worlds"]["main"])
    alone = [world_setting(inputs, given) for given in figures["worlds"]["alone"]]
    axes = [Axis.of(inputs, given) for given in figures["sweeps"]["axes"]]
    all_three = AgainstAll("all three", main, figures["bars"], figures["bars"]["stops_and_moves"])
    return [
        all_three,
        HowFarFromOptimal(all_three),
        *(AgainstAll(setting.name, setting, figures["alone"]) for setting in alone),
        Ablation(main.first(2)),
        Sweep(axes),
        *own_grounds(inputs),
    ]


NOTES = (
    "Differences are paired by seed, relative, with 95 % intervals of Student's t; 'best per seed' takes the best "
    "contender of each seed, which no single scheduler could be.",
    "'packed anew' places every job in every round. With restarts of 30 s in rounds of 360 s that is cheap and nearly "
    "undoes all fragmentation, at forty to fifty moves per job.",
    "Goals are shown and do not count. The prototype is another simulator of the same formulas.",
)
WITHOUT_WORLDS = (
    "The reference worlds were not at hand (--data DIR must name the folder that holds worlds/): worlds of the same "
    "kinds were drawn, and no bar is held there."
)
WITHOUT_PAL = "PAL's workloads were skipped: --data DIR must name the folder that holds traces/pal_workloads."
QUICK = "Quick: fewer seeds and points. Bars of the worlds are held with all seeds only."


def notes(inputs: JointInputs) -> list[str]:
    """What a reader must know, by what was at hand."""
    missing = [(WITHOUT_WORLDS, not inputs.has_worlds), (WITHOUT_PAL, not inputs.has_pal), (QUICK, inputs.quick)]
    return [*NOTES, *(note for note, applies in missing if applies)]


PAPER = Paper("The trine policy", Path(__file__).parent / "joint.yaml", joint_inputs, experiments, notes)
