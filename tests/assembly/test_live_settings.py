"""Every setting is either read by the scheduler, and so counts live, or only by a simulation, and is refused there."""

from __future__ import annotations

from trine.assembly.registry import PolicyEntry, ordering_policies, placements, share_policies
from trine.assembly.settings import GROUPS, RunSettings, is_only_simulated
from trine.core.params import params_of
from trine.parity.flags import Compat

READ_BY_THE_SCHEDULER = {
    "round_s",
    *("restore_s", "migration_s", "restart", "checkpoint_every_s"),
    *("strict", "policy_kind"),
    *("locality_penalty", "rack_penalty", "class_penalty"),
    *("network", "link_sharing", "oversubscription", "congestion"),
}
OF_THE_SIMULATED_CLOCK = {"round_ends_early", "charge_gap", "remainder_failure", "pair_cost_twice"}


def test_settings_of_a_run_that_the_scheduler_does_not_read_are_only_simulated() -> None:
    """A new one belongs into one of the two sets."""
    read = {name for name in params_of(RunSettings) if not is_only_simulated(name)}
    assert read == READ_BY_THE_SCHEDULER
    assert {name for name in params_of(RunSettings) if not is_only_simulated(f"run.{name}")} == READ_BY_THE_SCHEDULER


def test_groups_of_drawn_input_are_only_simulated() -> None:
    for group in GROUPS.keys() - {"run"}:
        assert all(is_only_simulated(f"{group}.{name}") for name in params_of(GROUPS[group]))


def test_quirks_of_the_simulated_clock_are_only_simulated() -> None:
    assert {name for name in Compat.names() if is_only_simulated(f"compat.{name}")} == OF_THE_SIMULATED_CLOCK


def test_no_parameter_of_a_policy_or_placement_is_taken_for_one_of_the_simulation() -> None:
    known = [PolicyEntry(found, False).params for found in ordering_policies().values()]
    known += [PolicyEntry(found, True).params for found in share_policies().values()]
    known += [params_of(found) for found in placements().values()]
    assert [name for params in known for name in params if is_only_simulated(name)] == []
