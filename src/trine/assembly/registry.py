"""Finds policies and placements by the name a user gives, or in a plug-in file, and makes them with their parameters.

Share policies are loaded only when one is asked for: a run under a policy that orders jobs imports none of them.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from trine.assembly.choices import Choice, class_of, made_anew
from trine.core.errors import InputError, unknown_name
from trine.core.params import Param, build, params_of
from trine.core.plugins import discover, find, find_in_file
from trine.parity.flags import Compat
from trine.placement.base import Placement
from trine.placement.wrapper import Sticky
from trine.policy.base import Policy

if TYPE_CHECKING:
    from trine.policy.shares.base import SharePolicy
    from trine.policy.shares.rounds.round_params import RoundParams

WHERE = "--set"
STICKY = "-sticky"
DEFAULT_POLICY = "trine"
"""Of a simulation that names none."""
SHARE_KEYS = ("aware", "form", "space_sharing")
"""Parameters that select the share policy where an ordering policy has the same name."""


@dataclass(frozen=True)
class PolicyEntry:
    """A policy class, and whether it orders jobs or computes shares."""

    policy_type: type[Any]
    computes_shares: bool
    made: Any = None
    """The object that was given, if one was; a run has a fresh one with its parameters."""

    @property
    def params(self) -> dict[str, Param]:
        """Its parameters by name; those of the round mechanism are a share policy's too."""
        own = params_of(self.policy_type)
        return own | _round_params() if self.computes_shares else own


def ordering_policies() -> dict[str, type[Policy]]:
    """Policies that order jobs, by name."""
    return discover("trine.policy", Policy)


def share_policies() -> dict[str, type[SharePolicy]]:
    """Policies that compute shares of time, by name."""
    from trine.policy.shares.base import SharePolicy

    return discover("trine.policy.shares", SharePolicy)


def placements() -> dict[str, type[Placement]]:
    """Placements by name, without the ``-sticky`` forms."""
    return discover("trine.placement", Placement)


def find_policy(name: Choice, keys: Collection[str] = (), *, prefer_shares: bool = False) -> PolicyEntry:
    """The policy called ``name``, or the one in the file ``name``; ``keys`` are the parameters given for it.

    In place of a name stands a class or an object where the caller has one.

    A name that an ordering and a share policy have in common means the former, unless ``prefer_shares`` is set or a
    key belongs to the latter.
    """
    if not isinstance(name, str):
        return _given_policy(name)
    if name.endswith(".py"):
        return _policy_in_file(name)
    ordering, shares_wanted = ordering_policies(), prefer_shares or bool(set(keys).intersection(SHARE_KEYS))
    if name in ordering and not shares_wanted:
        return PolicyEntry(find("trine.policy", Policy, "policy", name, "--policy"), computes_shares=False)
    shares = share_policies()
    if name in shares:
        return PolicyEntry(shares[name], computes_shares=True)
    if name in ordering:
        return PolicyEntry(ordering[name], computes_shares=False)
    raise unknown_name("--policy", "policy", name, {**ordering, **shares})


def _policy_in_file(path: str) -> PolicyEntry:
    """Of either kind, whichever the file defines."""
    from trine.policy.shares.base import SharePolicy

    found = find_in_file(path, (Policy, SharePolicy), "policy", "--policy")
    return PolicyEntry(found, issubclass(found, SharePolicy))


def _given_policy(given: Choice) -> PolicyEntry:
    from trine.policy.shares.base import SharePolicy

    policy_type = class_of(given, (Policy, SharePolicy), "policy")
    return PolicyEntry(policy_type, issubclass(policy_type, SharePolicy), None if given is policy_type else given)


def find_placement(name: Choice) -> type[Placement]:
    """The placement called ``name``, with or without ``-sticky``, or in the file ``name``; or the class given."""
    if not isinstance(name, str):
        return class_of(name, (Placement,), "placement")
    return find("trine.placement", Placement, "placement", name.removesuffix(STICKY), "--placement")


def placement_for(policy: Choice) -> str:
    """The placement that goes with the policy, where none is named."""
    found: str = find_policy(policy).policy_type.goes_with
    return found


def parameters_called(name: Choice) -> list[dict[str, Param]]:
    """Parameters of every policy and placement of this name, or of the file, class or object given."""
    if not isinstance(name, str):
        return [params_of(name if isinstance(name, type) else type(name))]
    if name.endswith(".py"):
        return [_in_file(name).params]
    found = [PolicyEntry(known[name], False).params for known in (ordering_policies(), placements()) if name in known]
    shares = share_policies()
    return [*found, PolicyEntry(shares[name], True).params] if name in shares else found


def own_name(name: str) -> str:
    """What the policy or placement calls itself: ``name``, or the name of the class in the file ``name``."""
    return str(_in_file(name).policy_type.name) if name.endswith(".py") else name


def _in_file(path: str) -> PolicyEntry:
    """The policy in a file, or the placement if it defines none."""
    try:
        return _policy_in_file(path)
    except InputError:
        return PolicyEntry(find("trine.placement", Placement, "placement", path, "--placement"), computes_shares=False)


def make_policy(
    entry: PolicyEntry, values: dict[str, Any], round_s: float, compat: Compat, seed: int
) -> tuple[Policy, RoundParams | None]:
    """The policy with these parameters; a share policy gets the round mechanism around it, and its parameters beside.

    ``seed`` is that of the run: what a share policy draws comes from it, unless ``rounds_seed`` names another.
    """
    if not entry.computes_shares:
        return _built(entry.policy_type, entry.made, values), None
    from trine.parity.gavel_rounds import round_conventions
    from trine.parity.gavel_shares import for_rounds
    from trine.policy.shares.rounds.mechanism import ShareRounds
    from trine.policy.shares.rounds.round_params import RoundParams

    of_rounds = {name: value for name, value in values.items() if name in _round_params()}
    own = {name: value for name, value in values.items() if name not in of_rounds}
    shares = for_rounds(_built(entry.policy_type, entry.made, own), compat)
    params: RoundParams = build(RoundParams, of_rounds, WHERE)
    if params.rounds_seed is None:
        params = replace(params, rounds_seed=seed)
    return ShareRounds(shares, params, round_s, round_conventions(compat)), params


def _built(owner: type[Any], made: Any, values: dict[str, Any]) -> Any:
    return build(owner, values, WHERE) if made is None else made_anew(made, values, WHERE)


def make_placement(name: Choice, placement_type: type[Placement], values: dict[str, Any]) -> Placement:
    """The placement with these parameters; one whose name ends in ``-sticky`` keeps running jobs where they are."""
    inner: Placement = _built(placement_type, None if isinstance(name, str | type) else name, values)
    return Sticky(inner) if isinstance(name, str) and name.endswith(STICKY) else inner


def _round_params() -> dict[str, Param]:
    from trine.policy.shares.rounds.round_params import RoundParams

    return params_of(RoundParams)
