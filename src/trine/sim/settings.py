"""All that ``--set`` can say about a run, sorted to those who understand it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from trine.core.compat import Compat
from trine.core.errors import InputError, unknown_name
from trine.core.params import Param, build, convert, param, params_of
from trine.core.plugins import discover, find
from trine.inputs.text_file import read_numbers
from trine.placement.base import Placement, Sticky
from trine.policy.base import Policy
from trine.policy.shares.base import SharePolicy
from trine.policy.shares.rounds.params import RoundParams
from trine.policy.shares.rounds.quirks import for_rounds
from trine.policy.shares.rounds.share_rounds import ShareRounds
from trine.sim.world import WorldSettings

WHERE = "--set"
STICKY = "-sticky"
SHARE_WORDS = ("aware", "form", "space_sharing")
"""Parameters that mean the share policy where an ordering policy has the same name."""


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
    window: str = param(
        "", "measure only the jobs FROM:TO (positions in the trace, TO excluded); the others load the cluster"
    )
    background_jobs_per_h: float = param(0.0, "repeat the trace as untracked load at this rate; 0 = not", minimum=0)
    background_seed: int = param(1, "random stream of the background arrivals")


@dataclass(frozen=True)
class WorkloadSettings:
    """What the workload generator is told (``workload.NAME``)."""

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
    """What an importer is told: which jobs to keep, and values that the file lacks (``trace.NAME``)."""

    jobs_per_h: float = param(10.0, "Poisson rate for traces without arrival times", minimum=1e-9)
    duration_s: float | None = param(None, "run time for traces without one", minimum=1e-9)
    seed: int | None = param(None, "random stream of drawn arrivals and models; none = the run's seed")
    group: tuple[str, ...] = param((), "keep only jobs of these groups (virtual clusters), separated by commas")
    models: str = param("", "mix from which jobs without a model draw one: draw, gavel or a workload's name")
    sensitive_share: float | None = param(
        None, "share of gangs whose drawn model is network-sensitive; none = as the mix has it", minimum=0, maximum=1
    )


@dataclass(frozen=True)
class VariabilitySettings:
    """Which chips the cluster has, where they are drawn from records (``variability.NAME``)."""

    draw: str = param("gpu_median", "whole GPUs with their median runs, or single records", ("gpu_median", "record"))
    seed: int | None = param(None, "random stream of the chips; none = the run's seed")
    cap: float | None = param(None, "slowdowns above this count as 1: the cluster without its outliers", minimum=1)


GROUPS = {"run": RunSettings, "workload": WorkloadSettings, "trace": TraceSettings, "variability": VariabilitySettings}
"""Those of ``run`` go by their bare name, the others have the group's name in front."""


@dataclass(frozen=True)
class Settings:
    """Everything ``--set`` said, typed."""

    run: RunSettings
    workload: WorkloadSettings
    trace: TraceSettings
    variability: VariabilitySettings
    compat: Compat
    policy: Policy
    placement: Placement


@dataclass
class _Sorted:
    """``--set`` pairs by who understands them."""

    run: dict[str, Any] = field(default_factory=dict)
    workload: dict[str, Any] = field(default_factory=dict)
    trace: dict[str, Any] = field(default_factory=dict)
    variability: dict[str, Any] = field(default_factory=dict)
    compat: dict[str, Any] = field(default_factory=dict)
    policy: dict[str, Any] = field(default_factory=dict)
    placement: dict[str, Any] = field(default_factory=dict)


def resolve(
    policy: str,
    placement: str,
    values: Mapping[str, Any],
    authors: tuple[str, ...] = (),
    others: tuple[str, ...] = (),
    seed: int = 0,
) -> Settings:
    """Typed settings for a run. Raises ``InputError`` for names nobody knows and values of the wrong kind.

    ``others`` are further policies and placements of the same sweep: their parameters are known, but not for this run.
    ``seed`` is the run's: a policy that draws takes it unless told its own.
    """
    policy_type = _policy_type(policy, values)
    sticky = placement.endswith(STICKY)
    placement_type = find("trine.placement", Placement, "placement", placement.removesuffix(STICKY), "--placement")
    known = {group: params_of(owner) for group, owner in GROUPS.items()}
    known |= {"policy": _policy_params(policy_type), "placement": params_of(placement_type)}
    named = {policy: "policy", placement: "placement", placement.removesuffix(STICKY): "placement"}
    parts = _Sorted()
    for name, value in values.items():
        if not _sort_in(parts, known, named, name, value) and not _meant_for(others, name):
            raise unknown_name(WHERE, "key", name, _all_names(known))
    inner = build(placement_type, parts.placement, WHERE)
    run, compat = build(RunSettings, parts.run, WHERE), _compat(parts.compat, authors)
    return Settings(
        run,
        build(WorkloadSettings, parts.workload, WHERE, "workload."),
        build(TraceSettings, parts.trace, WHERE, "trace."),
        build(VariabilitySettings, parts.variability, WHERE, "variability."),
        compat,
        _policy(policy_type, parts.policy, run.round_s, compat, seed),
        Sticky(inner) if sticky else inner,
    )


def _policy_type(name: str, values: Mapping[str, Any]) -> type[Any]:
    """The policy called ``name``: one that orders jobs or one that computes shares."""
    ordering = discover("trine.policy", Policy)
    told = {key.removeprefix(f"{name}.").removeprefix("policy.") for key in values}
    if name.endswith(".py") or (name in ordering and told.isdisjoint(SHARE_WORDS)):
        return find("trine.policy", Policy, "policy", name, "--policy")
    known: dict[str, type[Any]] = {**ordering, **discover("trine.policy.shares", SharePolicy)}
    if name not in known:
        raise unknown_name("--policy", "policy", name, known)
    return known[name]


def _policy_params(policy_type: type[Any]) -> dict[str, Param]:
    own = params_of(policy_type)
    return own | params_of(RoundParams) if issubclass(policy_type, SharePolicy) else own


def _policy(policy_type: type[Any], values: dict[str, Any], round_s: float, compat: Compat, seed: int) -> Policy:
    """A share policy gets the round mechanism around it."""
    if not issubclass(policy_type, SharePolicy):
        made: Policy = build(policy_type, values, WHERE)
        return made
    rounds = {name: value for name, value in values.items() if name in params_of(RoundParams)}
    own = {name: value for name, value in values.items() if name not in rounds}
    shares = for_rounds(build(policy_type, own, WHERE), compat)
    params: RoundParams = build(RoundParams, rounds, WHERE)
    if params.rounds_seed is None:
        params = replace(params, rounds_seed=seed)
    return ShareRounds(shares, params, round_s, compat.every_pair)


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
    """A bare name goes to the run, the policy and the placement, whoever has it; a dotted one where the dot says.

    Before the dot stands a group of settings, or the name of the policy or the placement. False: nobody has it.
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


def _meant_for(others: tuple[str, ...], name: str) -> bool:
    """Another policy or placement of the sweep has this parameter."""
    head, _, rest = name.partition(".")
    for other in others:
        plain = other.removesuffix(STICKY)
        for found in _called(plain):
            params = _policy_params(found)
            if name in params or (head in (other, plain) and rest in params):
                return True
    return False


def _called(name: str) -> list[type[Any]]:
    """All policies and placements of this name."""
    everything: tuple[dict[str, type[Any]], ...] = (
        dict(discover("trine.policy", Policy)),
        dict(discover("trine.policy.shares", SharePolicy)),
        dict(discover("trine.placement", Placement)),
    )
    return [found[name] for found in everything if name in found]


def _from_file(p: Param, value: Any) -> Any:
    """A list of numbers may be given as the name of a file that holds them."""
    if p.kind == tuple[float, ...] and isinstance(value, str) and Path(value).is_file():
        return read_numbers(value)
    return value


def _all_names(known: dict[str, dict[str, Param]]) -> list[str]:
    bare = [name for owner in ("run", "policy", "placement") for name in known[owner]]
    dotted = [f"{owner}.{name}" for owner in ("workload", "trace", "variability") for name in known[owner]]
    return bare + dotted + ["compat"] + [f"compat.{name}" for name in Compat.names()]


def _compat(values: dict[str, Any], authors: tuple[str, ...]) -> Compat:
    flags: dict[str, bool] = {}
    if "compat" in values:
        if values.pop("compat") != "authors":
            raise InputError(WHERE, "compat without 'authors'", "compat=authors or compat.NAME=true", "compat")
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
    placement = settings.placement.inner if isinstance(settings.placement, Sticky) else settings.placement
    return parts | {"policy": _plain(settings.policy), "placement": _plain(placement)}


def _plain(owner: Any) -> dict[str, Any]:
    if isinstance(owner, ShareRounds):
        return _plain(owner.shares) | _plain(owner.params)
    names = [f.name for f in fields(owner) if f.init]
    return {name: getattr(owner, name) for name in names}
