"""The settings of a run: everything that ``--set`` can change, with its default, and how a key finds its owner.

A key belongs to a group of settings, to the policy or to the placement; ``resolve`` sorts them and makes typed values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trine.assembly.choices import Choice, name_of
from trine.assembly.registry import (
    STICKY,
    WHERE,
    find_placement,
    find_policy,
    make_placement,
    make_policy,
    own_name,
    parameters_called,
)
from trine.core.costs import StopCosts
from trine.core.errors import InputError, unknown_name
from trine.core.params import Param, build, convert, param, params_of
from trine.inputs.text_file import read_numbers
from trine.parity import pal
from trine.parity.flags import Compat
from trine.placement.base import Placement
from trine.placement.wrapper import Sticky
from trine.policy.base import Policy

if TYPE_CHECKING:
    from trine.policy.shares.rounds.round_params import RoundParams


@dataclass(frozen=True)
class WorldSettings:
    """How time passes and what a stop costs."""

    round_s: float = param(300.0, "seconds between decisions", minimum=1e-3)
    event_driven: bool = param(False, "decide at every arrival and completion instead of in rounds")
    fill: bool = param(False, "between rounds, give free GPUs to waiting jobs at every arrival and completion")
    finish: str = param(
        "exact",
        "when a completion counts: at its own time (GPUs held to the end of the round) or at the boundary",
        ("exact", "round"),
    )
    ideal: bool = param(False, "share policies only: no rounds, every job has its share of each type all the time")
    restore_s: float = param(0.0, "seconds before work goes on after a preemption", minimum=0)
    migration_s: float | None = param(None, "the same after a move to other GPUs; none = as restore_s", minimum=0)
    restart: str = param(
        "restore_s",
        "what a restart costs: restore_s for all jobs, or model = the seconds that the table of models has instead",
        ("restore_s", "model"),
    )
    checkpoint_every_s: float = param(
        0.0, "work since the last multiple is lost at a stop; 0 = checkpoint at the stop", minimum=0
    )
    validate: bool = param(False, "check the invariants after every step")

    @property
    def costs(self) -> StopCosts:
        """What stops cost, but for what depends on the model; see ``factory.stop_costs``."""
        return StopCosts(self.restore_s, self.migration_s, self.checkpoint_every_s)


@dataclass(frozen=True)
class RunSettings(WorldSettings):
    """How the simulated cluster behaves."""

    strict: bool | None = param(
        None, "the first job that does not fit blocks those behind it; none = as the policy says"
    )
    oversize: str = param(
        "refuse", "a job larger than the cluster: refuse the trace, or skip and count it", ("refuse", "skip")
    )
    locality_penalty: float = param(1.0, "slowdown of a gang that spans nodes", minimum=1)
    rack_penalty: float | None = param(
        None, "slowdown of a gang that spans racks; none = as locality_penalty", minimum=1
    )
    class_penalty: tuple[str, ...] = param(
        (),
        "penalties of application classes: CLASS=ACROSS_NODES or CLASS=ACROSS_NODES/ACROSS_RACKS, separated by commas",
    )
    network: str = param(
        "auto",
        "links between GPUs: cloud-tcp, ethernet-50g, ethernet-100g, dgx-ib, an ASTRA-sim file; auto = those of "
        "the cluster file, if it states them and no penalty is given; off = penalties only",
    )
    link_sharing: str = param(
        "max-min",
        "how gangs share links: max-min fair, by the duty of the others, or none = each has them to itself",
        ("max-min", "duty", "none"),
    )
    oversubscription: float | None = param(
        None, "NICs of a rack over its uplink; none = as the network states", minimum=1e-6
    )
    congestion: float = param(1.0, "scales NICs and uplinks: 0.1 leaves a tenth of them", minimum=1e-6)
    policy_kind: str = param(
        "ordering",
        "what a name means that a policy of each kind has (fifo): the one that orders jobs, or the one that computes "
        "shares of GPU types",
        ("ordering", "shares"),
    )
    window: str = param(
        "", "measure only the jobs FROM:TO (positions in the trace, TO excluded); the others load the cluster"
    )
    watts: tuple[str, ...] = param(
        (), "power of a GPU by type, in place of the published one: TYPE=WATTS, separated by commas"
    )
    background_jobs_per_h: float = param(0.0, "repeat the trace as untracked load at this rate; 0 = not", minimum=0)
    background_seed: int = param(1, "random stream of the background arrivals")


@dataclass(frozen=True)
class WorkloadSettings:
    """What the workload generator draws (``workload.NAME``)."""

    jobs: int = param(500, "number of jobs", minimum=1)
    load: float | None = param(None, "offered GPU-seconds per second, as a fraction of the cluster", minimum=1e-9)
    jobs_per_h: float | None = param(None, "mean arrival rate instead of a load", minimum=1e-9)
    arrivals: str = param("poisson", "arrival process", ("poisson", "diurnal", "batch"))
    max_gpus: int | None = param(None, "largest gang; none = the largest pool of the cluster", minimum=1)
    models: str = param("", "mix of models to draw from: draw, gavel or a workload's name; empty = the workload's own")
    sensitive_share: float | None = param(
        None, "share of gangs with a network-sensitive model; none = as the mix has it", minimum=0, maximum=1
    )


@dataclass(frozen=True)
class TraceSettings:
    """How a trace is read: which jobs to keep, and values that the file lacks (``trace.NAME``)."""

    jobs_per_h: float = param(10.0, "Poisson rate for traces without arrival times", minimum=1e-9)
    duration_s: float | None = param(None, "run time for traces without one", minimum=1e-9)
    seed: int | None = param(None, "random stream of drawn arrivals and models; none = the run's seed")
    group: tuple[str, ...] = param((), "keep only jobs of these groups (virtual clusters), separated by commas")
    models: str = param("", "mix from which jobs without a model draw one: draw, gavel or a workload's name")
    sensitive_share: float | None = param(
        None, "share of gangs whose drawn model is network-sensitive; none = as the mix has it", minimum=0, maximum=1
    )
    columns: tuple[str, ...] = param((), "FIELD=COLUMN[:UNIT] of a table of no known format, as --columns")
    since: str = param("", "keep jobs submitted at this time or later, as --from: seconds of the trace, or a date")
    until: str = param("", "keep jobs submitted before this time, as --to")
    scale_load: float = param(1.0, "gaps between submissions are divided by this, as --scale-load", minimum=1e-9)


@dataclass(frozen=True)
class VariabilitySettings:
    """Which chips the cluster has, where they are drawn from records (``variability.NAME``)."""

    draw: str = param("gpu_median", "whole GPUs with their median runs, or single records", ("gpu_median", "record"))
    seed: int | None = param(None, "random stream of the chips; none = the run's seed")
    cap: float | None = param(None, "slowdowns above this count as 1: the cluster without its outliers", minimum=1)


@dataclass(frozen=True)
class DrawnWorldSettings:
    """The world that is drawn where ``--world`` names a kind and no directory (``world.NAME``)."""

    load: float = param(
        0.9, "work over capacity while jobs arrive, if each used the GPU types in proportion", minimum=1e-9
    )
    jobs: int = param(1500, "number of jobs", minimum=1)
    racks: int = param(9, "racks, each of one GPU type", minimum=1)
    nodes_per_rack: int = param(8, "nodes of a rack", minimum=1)
    gpus_per_node: int = param(4, "GPUs of a node", minimum=1)
    congestion: float | None = param(
        None, "NICs and uplinks over their nominal bandwidth; none = that of the kind", minimum=1e-6
    )


BLIND = ("type", "chip", "place")


@dataclass(frozen=True)
class BelievedSettings:
    """What the scheduler believes of speeds where the simulated world is otherwise (``believed.NAME``)."""

    type_error: float = param(
        0.0,
        "compute time of each model on each GPU type is off by exp(N(0, x)); models of the throughput table",
        minimum=0,
    )
    traffic_error: float = param(0.0, "the bytes that each model sends are off by exp(N(0, x))", minimum=0)
    chip_error: float = param(0.0, "the slowdown of each chip is off by exp(N(0, x)), for each class", minimum=0)
    blind: tuple[str, ...] = param(
        (),
        "differences that it does not see, separated by commas: type, chip, place; the first as if all were the best",
    )
    measured: bool = param(True, "it sees how fast running jobs are; false: only how far they are")
    seed: int | None = param(None, "random stream of the errors; none = the run's seed")

    def __post_init__(self) -> None:
        for name in self.blind:
            if name not in BLIND:
                raise unknown_name(WHERE, "difference", name, BLIND, "believed.blind")

    @property
    def differs(self) -> bool:
        """The scheduler does not believe what is."""
        return bool(self.type_error or self.traffic_error or self.chip_error or self.blind)


GROUPS = {
    "run": RunSettings,
    "workload": WorkloadSettings,
    "trace": TraceSettings,
    "variability": VariabilitySettings,
    "world": DrawnWorldSettings,
    "believed": BelievedSettings,
}
"""Those of ``run`` go by their bare name, the others have the group's name in front."""
_SIMULATED_RUN = frozenset(
    {
        *("event_driven", "fill", "finish", "ideal", "validate", "oversize", "window", "watts"),
        *("background_jobs_per_h", "background_seed"),
    }
)
"""Of ``run``: what a simulated cluster does, or what is measured of it."""
_SIMULATED_COMPAT = frozenset({"round_ends_early", "charge_gap", "remainder_failure", "pair_cost_twice"})
"""Quirks of the simulated clock and of simulated bills."""


@dataclass(frozen=True)
class Settings:
    """Everything ``--set`` said, typed."""

    run: RunSettings
    workload: WorkloadSettings
    trace: TraceSettings
    variability: VariabilitySettings
    world: DrawnWorldSettings
    believed: BelievedSettings
    compat: Compat
    policy: Policy
    placement: Placement
    round_params: RoundParams | None
    """How shares become rounds; ``None`` under a policy that orders jobs."""


@dataclass
class _Sorted:
    """``--set`` pairs by their owner."""

    run: dict[str, Any] = field(default_factory=dict)
    workload: dict[str, Any] = field(default_factory=dict)
    trace: dict[str, Any] = field(default_factory=dict)
    variability: dict[str, Any] = field(default_factory=dict)
    world: dict[str, Any] = field(default_factory=dict)
    believed: dict[str, Any] = field(default_factory=dict)
    compat: dict[str, Any] = field(default_factory=dict)
    policy: dict[str, Any] = field(default_factory=dict)
    placement: dict[str, Any] = field(default_factory=dict)


def resolve(
    policy: Choice,
    placement: Choice,
    values: Mapping[str, Any],
    authors: tuple[str, ...] = (),
    others: tuple[Choice, ...] = (),
    seed: int = 0,
) -> Settings:
    """Typed settings for a run. Raises ``InputError`` for unknown names and values of the wrong kind.

    Policy and placement are names, or classes or objects of the caller (``choices``).

    ``others`` are further policies and placements of the same sweep: their parameters are known, but not for this run.
    ``seed`` is that of the run: a policy that draws takes it unless a setting names another.
    """
    policy_name, placement_name = name_of(policy), name_of(placement)
    keys = {key.removeprefix(f"{policy_name}.").removeprefix("policy.") for key in values}
    entry = find_policy(policy, keys, prefer_shares=values.get("policy_kind") == "shares")
    placement_type = find_placement(placement)
    known = {group: params_of(owner) for group, owner in GROUPS.items()}
    known |= {"policy": entry.params, "placement": params_of(placement_type)}
    plain = placement_name.removesuffix(STICKY)
    named = {placement_name: "placement", plain: "placement", str(placement_type.name): "placement"}
    named |= {policy_name: "policy", str(entry.policy_type.name): "policy"}
    parts = _Sorted()
    for name, value in values.items():
        if not _sort_in(parts, known, named, name, value) and not _meant_for(others, name):
            raise unknown_name(WHERE, "key", name, _all_names(known))
    run, compat = build(RunSettings, parts.run, WHERE), _compat(parts.compat, authors)
    made_placement = pal.configured(make_placement(placement, placement_type, parts.placement), compat)
    workload = build(WorkloadSettings, parts.workload, WHERE, "workload.")
    trace = build(TraceSettings, parts.trace, WHERE, "trace.")
    variability = build(VariabilitySettings, parts.variability, WHERE, "variability.")
    world = build(DrawnWorldSettings, parts.world, WHERE, "world.")
    believed = build(BelievedSettings, parts.believed, WHERE, "believed.")
    made_policy, round_params = make_policy(entry, parts.policy, run.round_s, compat, seed)
    drawn = (workload, trace, variability, world)
    return Settings(run, *drawn, believed, compat, made_policy, made_placement, round_params)


def is_only_simulated(name: str) -> bool:
    """A key that only a simulation reads. The scheduler itself reads all others: they count live, too."""
    head, _, rest = name.partition(".")
    if head == "compat":
        return rest in _SIMULATED_COMPAT
    if head in GROUPS and rest:
        return head != "run" or rest in _SIMULATED_RUN
    return name in _SIMULATED_RUN


def parse_pairs(pairs: list[str]) -> dict[str, str]:
    """``["a=1", "b.c=2"]`` as a dict; the last of equal names wins."""
    values: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name.strip():
            raise InputError(WHERE, f"{pair!r}", "key=value")
        values[name.strip()] = value.strip()
    return values


def _sort_in(parts: _Sorted, known: dict[str, dict[str, Param]], named: dict[str, str], name: str, value: Any) -> bool:
    """A bare name goes to those of run, policy and placement that have it; a dotted one to the owner it names.

    Before the dot stands a group of settings, or the name of the policy or the placement. False: it has no owner.
    """
    head, dot, rest = name.partition(".")
    if head == "compat":
        parts.compat[rest or "compat"] = value
        return True
    group = head if head in known else named.get(head, "")
    if dot and group:
        owners, key = [group], rest
    else:
        owners, key = ["run", "policy", "placement"], name
    owners = [owner for owner in owners if key in known[owner]]
    for owner in owners:
        getattr(parts, owner)[key] = _from_file(known[owner][key], value)
    return bool(owners)


def _meant_for(others: tuple[Choice, ...], name: str) -> bool:
    """Another policy or placement of the sweep has this parameter."""
    head, _, rest = name.partition(".")
    for other in others:
        called = name_of(other)
        plain = called.removesuffix(STICKY)
        for params in parameters_called(plain if isinstance(other, str) else other):
            if name in params or (head in (called, plain, own_name(plain)) and rest in params):
                return True
    return False


def _from_file(p: Param, value: Any) -> Any:
    """A list of numbers may be given as the name of a file that holds them."""
    if p.kind == tuple[float, ...] and isinstance(value, str) and Path(value).is_file():
        return read_numbers(value)
    return value


def _all_names(known: dict[str, dict[str, Param]]) -> list[str]:
    bare = [name for owner in ("run", "policy", "placement") for name in known[owner]]
    dotted = [f"{owner}.{name}" for owner in GROUPS if owner != "run" for name in known[owner]]
    return bare + dotted + ["compat"] + [f"compat.{name}" for name in Compat.names()]


def _compat(values: dict[str, Any], authors: tuple[str, ...]) -> Compat:
    flags: dict[str, bool] = {}
    chosen = values.pop("compat", "none")
    if chosen != "none":
        if chosen != "authors":
            raise InputError(WHERE, f"{chosen!r}", "compat=authors, compat=none or compat.NAME=true", "compat")
        if not authors:
            raise InputError(
                WHERE, "compat=authors without a preset that names quirks", "a preset such as pal-sia", "compat"
            )
        flags = dict.fromkeys(authors, True)
    for name, value in values.items():
        if name not in Compat.names():
            raise unknown_name(WHERE, "quirk", name, Compat.names(), "compat")
        flags[name] = convert(Param(name, bool, False, "a quirk of published code", (), None), value, WHERE)
    return Compat(**flags)


def described(settings: Settings) -> dict[str, Any]:
    """Plain values of all settings, for the record."""
    parts: dict[str, Any] = {name: _plain(getattr(settings, name)) for name in (*GROUPS, "compat")}
    placement = settings.placement.within if isinstance(settings.placement, Sticky) else settings.placement
    return parts | {"policy": _plain_policy(settings), "placement": _plain(placement)}


def _plain_policy(settings: Settings) -> dict[str, Any]:
    """Of a share policy, its own parameters and those of the round mechanism around it."""
    if settings.round_params is None:
        return _plain(settings.policy)
    from trine.policy.shares.rounds.mechanism import ShareRounds

    assert isinstance(settings.policy, ShareRounds)
    return _plain(settings.policy.shares) | _plain(settings.round_params)


def _plain(owner: Any) -> dict[str, Any]:
    return {f.name: getattr(owner, f.name) for f in fields(owner) if f.init} if is_dataclass(owner) else {}
