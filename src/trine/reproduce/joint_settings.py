"""The settings of the joint experiments: worlds that are read or drawn, and the grounds of the ancestors.

Where the reference worlds are not at hand the same kinds are drawn; the bars, which were set on the former, are not
held then. ``joint.yaml`` says who is compared where.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from trine.core.errors import InputError
from trine.reproduce.experiment import Contender, Inputs, contenders_of, preset_scenario
from trine.reproduce.paired_comparison import Band, Setting
from trine.sim.scenario import Scenario

LEARNED, KNOWN = "trine, learned", "trine, known"


class JointInputs(Inputs):
    """Contenders by name, and the public data as far as it is at hand."""

    def contenders(self, names: Iterable[str], more: Mapping[str, Any] | None = None) -> dict[str, Contender]:
        """By name, among those of the file and ``more``."""
        known = contenders_of(self.figures["contenders"]) | contenders_of(more or {})
        return {name: known[name] for name in names}

    def group(self, names: Iterable[str]) -> list[str]:
        """The contenders of several groups; a quick run leaves most of them out."""
        found = [name for group in names for name in self.figures["groups"][group]]
        return [name for name in found if name in self.figures["quick"]["contenders"]] if self.quick else found

    def bars(self, ours: str, given: Iterable[Mapping[str, Any]]) -> list[Band]:
        """From YAML, where ``against`` names groups."""
        return [Band.of(ours, {**bar, "against": self.group(bar["against"])}) for bar in given]

    def seeds(self, wanted: int) -> int:
        return min(wanted, self.figures["quick"]["seeds"]) if self.quick else wanted

    def at_hand(self, path: str) -> Path | None:
        """A file or folder below the root or its ``data``."""
        return next((p for p in (self.root / path, self.root / "data" / path) if p.exists()), None)

    @property
    def has_worlds(self) -> bool:
        return self.at_hand(self.figures["worlds"]["folder"]) is not None

    @property
    def has_pal(self) -> bool:
        return self.at_hand("traces/pal_workloads/philly") is not None


def joint_inputs(folder: str, scratch: Path, figures: Mapping[str, Any], quick: bool) -> JointInputs:
    """Without a folder every world is drawn; a folder that does not exist is a mistake."""
    if folder and not Path(folder).is_dir():
        raise InputError("--data", f"no directory {folder}", "the folder that holds worlds/, or none at all")
    return JointInputs(Path(folder) if folder else scratch, scratch, figures, quick)


# -- worlds ----------------------------------------------------------------------------------------------------------


def world_setting(inputs: JointInputs, given: Mapping[str, Any]) -> Setting:
    """Reference worlds of one kind and load, by seed; drawn ones where they are not at hand, which hold no bars."""
    kind, load, seeds = given["kind"], given["load"], range(1, inputs.seeds(given["seeds"]) + 1)
    name = f"{kind}, load {load:g}"
    folder = inputs.at_hand(inputs.figures["worlds"]["folder"])
    if folder is None:
        return drawn_setting(f"{name}, drawn", inputs.figures["worlds"]["drawn"] | {"load": load}, seeds, kind)
    paths = [folder / f"{kind}-load{load:g}-seed{seed}" for seed in seeds]
    return Setting(name, tuple(Scenario(world=str(path)) for path in paths), judged=not inputs.quick)


def drawn_setting(
    name: str, drawn: Mapping[str, Any], seeds: Iterable[int], kind: str = "TVN", **values: Any
) -> Setting:
    """Worlds that are drawn with these settings; ``values`` are further settings of the runs."""
    settings = {f"world.{key}": value for key, value in drawn.items()} | values
    return Setting(name, tuple(Scenario(world=kind, seed=seed, values=dict(settings)) for seed in seeds), judged=False)


def prototype_results(setting: Setting, policy: str) -> list[dict[str, float]] | None:
    """What the prototype had in each world of the setting, in hours; ``None`` where that is not known."""
    paths = [Path(scenario.world) / "prototype_results.json" for scenario in setting.scenarios]
    if not all(path.is_file() for path in paths):
        return None
    return [json.loads(path.read_text(encoding="utf-8"))[policy] for path in paths]


@dataclass(frozen=True)
class Axis:
    """One quantity that is varied in drawn worlds; the others stay."""

    name: str
    title: str
    points: tuple[float, ...]
    usual: float
    """Its value where another quantity is varied: all axes share the runs there."""
    setting: str

    @classmethod
    def of(cls, inputs: JointInputs, given: Mapping[str, Any]) -> Axis:
        points = given["quick"] if inputs.quick else given["values"]
        return cls(given["name"], given["title"], tuple(map(float, points)), float(given["usual"]), given["setting"])

    def at(self, inputs: JointInputs, x: float) -> Setting:
        """All seeds at one value."""
        sweeps = inputs.figures["sweeps"]
        values = {} if x == self.usual else self._values(sweeps, x)
        drawn = inputs.figures["quick"]["drawn"] if inputs.quick else sweeps["drawn"]
        seeds = range(1, inputs.seeds(sweeps["seeds"]) + 1)
        return drawn_setting(f"{self.name} {x:g}", drawn, seeds, **values)

    def _values(self, sweeps: Mapping[str, Any], x: float) -> dict[str, Any]:
        if self.setting == "error":
            error = x / 100
            times = {"type": 1.0, "traffic": sweeps["bytes_times"], "chip": sweeps["chips_times"]}
            return {f"believed.{what}_error": error * factor for what, factor in times.items()}
        if self.setting == "world.gpus_per_node":
            # As many GPUs in a rack whatever the nodes: only how many of them lie together changes.
            rack = int(self.usual) * sweeps["drawn"]["nodes_per_rack"]
            return {"world.gpus_per_node": int(x), "world.nodes_per_rack": rack // int(x)}
        return {self.setting: x}


# -- grounds of the ancestors ------------------------------------------------------------------------------------------


def pal_setting(inputs: JointInputs) -> Setting:
    """A workload takes the place of a seed."""
    root = inputs.at_hand("traces/pal_workloads/philly")
    assert root is not None
    chips = root.parents[2] / "hardware/pal_gpu_variability/realised/gpus-64.csv"
    # Without the background of the preset: policies that let short jobs pass would never see the last of the long ones.
    values = {"restore_s": 30.0, "background_jobs_per_h": 0.0}
    base = preset_scenario("pal-sia", compat=False, values=values, trace="", variability=str(chips))
    workloads: Sequence[int] = inputs.figures["pal"]["workloads"]
    traces = tuple(replace(base, trace=str(root / f"workload-{number}.csv")) for number in workloads)
    return Setting("PAL's workloads 1 to 3, 30 s for a restart", traces)


def gavel_setting(inputs: JointInputs, jobs_per_h: float) -> Setting:
    ground = inputs.figures["gavel"]
    values = {"window": "", "workload.jobs": ground["jobs"], "workload.jobs_per_h": jobs_per_h}
    base = preset_scenario("gavel-continuous-multiple", compat=False, values=values)
    seeds = range(inputs.seeds(ground["seeds"]))
    return Setting(f"Gavel's continuous jobs, {jobs_per_h:g} per hour", tuple(replace(base, seed=s) for s in seeds))


def static_setting(jobs: int) -> Setting:
    """All jobs are there from the start; the batch that seed 0 draws."""
    scenario = preset_scenario("gavel-static", compat=False, values={"workload.jobs": jobs})
    return Setting(f"Gavel's batch of {jobs} jobs", (scenario,))
