"""The one place where a scenario or a sweep is put together: a preset, and over it what the caller gives.

The command line comes here with its flags and the Python API with its arguments; errors speak of flags, and
``arguments`` translates them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from trine.assembly.choices import Choice, label_of
from trine.assembly.registry import DEFAULT_POLICY, find_placement, find_policy, placement_for
from trine.core.errors import InputError
from trine.inputs.preset import Preset, load_preset
from trine.sim.scenario import Scenario, Sweep
from trine.trace import Trace

JOB_SETTINGS = ("trace.", "workload.")
"""Settings of jobs that are read or drawn; a world has its own jobs."""
WORLD_SETTINGS = "world."
"""Settings of a world that is drawn."""


@dataclass(frozen=True)
class Inputs:
    """What is simulated: jobs, cluster, files and settings. Empty leaves it to the preset."""

    preset: str = ""
    trace: str = ""
    loaded: Trace | None = None
    """What was read of the trace already, if the caller did so."""
    format: str = ""
    workload: str = ""
    cluster: str = ""
    world: str = ""
    variability: str = ""
    throughputs: str = ""
    prices: str = ""
    values: Mapping[str, Any] = field(default_factory=dict)
    """Settings by name, those of flags and arguments included."""

    def chosen_preset(self) -> Preset:
        return load_preset(self.preset) if self.preset else Preset("", "")


def make_scenario(inputs: Inputs, policy: Choice = "", placement: Choice = "", seed: int = 0) -> Scenario:
    """One run; ``trine`` and the placement that goes with a policy where neither caller nor preset names another."""
    if seed < 0:
        raise InputError("--seed", f"{seed}", "a whole number of at least 0")
    preset = inputs.chosen_preset()
    chosen = policy or preset.policy or DEFAULT_POLICY
    where = placement or preset.placement or placement_for(chosen)
    return replace(_base(inputs, preset), policy=chosen, placement=where, seed=seed)


def make_sweep(inputs: Inputs, policies: Sequence[Choice], placements: Sequence[Choice], seeds: Sequence[int]) -> Sweep:
    """Every policy with every placement and seed; what is empty comes from the preset.

    Where neither names placements, each policy runs with the one that goes with it.
    """
    preset = inputs.chosen_preset()
    for option, choices, find in (
        ("--policies", policies, find_policy),
        ("--placements", placements, find_placement),
    ):
        _check_different(option, choices)
        _check_known(option, choices, find)
    return Sweep(
        _base(inputs, preset),
        tuple(policies) or preset.policies or (preset.policy or DEFAULT_POLICY,),
        tuple(placements) or preset.placements or ((preset.placement,) if preset.placement else ()),
        tuple(seeds) or parse_seeds(preset.seeds or "0"),
    )


def parse_seeds(text: str) -> tuple[int, ...]:
    """``0..9`` or ``0,3,7``."""
    try:
        first, dots, last = text.partition("..")
        words = [part.strip() for part in text.split(",") if part.strip()]
        seeds = tuple(range(int(first), int(last) + 1)) if dots else tuple(int(word) for word in words)
    except ValueError:
        seeds = ()
    if not seeds or len(set(seeds)) != len(seeds) or min(seeds) < 0:
        raise InputError(
            "--seeds", f"{text!r}", "a range such as 0..9 or a list of different whole numbers such as 0,1,2"
        )
    return seeds


def _check_different(option: str, choices: Sequence[Choice]) -> None:
    """One given twice would count as another seed."""
    labels = [label_of(choice) for choice in choices]
    twice = [label for i, label in enumerate(labels) if label in labels[:i]]
    if twice:
        raise InputError(option, f"{twice[0]!r} twice", "each name once")


def _check_known(option: str, choices: Sequence[Choice], find: Callable[[Choice], Any]) -> None:
    """What is wrong with one of several is said of the option that lists them."""
    for choice in choices:
        try:
            find(choice)
        except InputError as error:
            if error.where not in ("--policy", "--placement"):
                raise
            raise InputError(option, error.found, error.expected, error.field) from None


def _base(inputs: Inputs, preset: Preset) -> Scenario:
    """The preset with the inputs on top; a trace that is given replaces the preset's workload and vice versa."""
    world = inputs.world
    if not (world or inputs.trace or inputs.workload or inputs.cluster):
        world = preset.world
    preset = _around_world(preset, world) if world else _without_settings(preset, (WORLD_SETTINGS,))
    given = bool(inputs.trace or inputs.workload)
    if not world:
        _check_complete(inputs.cluster or preset.cluster, given or preset.trace or preset.workload)
    return Scenario(
        cluster=inputs.cluster or preset.cluster,
        trace=inputs.trace if given else preset.trace,
        loaded=inputs.loaded,
        format=inputs.format or (preset.format if inputs.trace or not given else ""),
        workload=inputs.workload if given else preset.workload,
        world=world,
        variability=inputs.variability,
        throughputs=inputs.throughputs or preset.throughputs,
        prices=inputs.prices or preset.prices,
        authors=preset.authors,
        values=preset.settings | dict(inputs.values),
    )


def _check_complete(cluster: str, jobs: str | bool) -> None:
    if not cluster:
        raise InputError(
            "--cluster",
            "nothing",
            "nodes x GPUs such as 16x4, or a YAML file; or a --preset that names one, or --world",
        )
    if not jobs:
        raise InputError("--trace", "nothing", "a job trace, or --workload NAME")


def _around_world(preset: Preset, world: str) -> Preset:
    """What is left of a preset where a world takes the place of its jobs and its cluster; settings of those go with
    them, and so do those of another world."""
    left_out = JOB_SETTINGS if world == preset.world else (*JOB_SETTINGS, WORLD_SETTINGS)
    left = _without_settings(preset, left_out)
    return replace(left, cluster="", trace="", format="", workload="", throughputs="")


def _without_settings(preset: Preset, left_out: tuple[str, ...]) -> Preset:
    return replace(preset, settings={k: v for k, v in preset.settings.items() if not k.startswith(left_out)})
