"""Quirks of the published simulators, by name. Off unless a preset or ``--set compat.NAME=true`` says so.

The other modules of this package make flags strategies of the view, the planner, placements, rounds and the world.
"""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True)
class Compat:
    """Each flag reproduces one behaviour of published code so that results can be compared per job."""

    wall_attained: bool = False
    """Remaining time is the ideal run time minus the wall seconds run, whatever was really done (PAL)."""
    keep_evictions: bool = False
    """Jobs stopped for a job that then does not fit stay stopped for the round (PAL, sticky placements)."""

    pal_bins: bool = False
    """Score bins by the published rule: two plus the number of outliers, over all GPUs at once (PAL)."""
    pal_multi_node: bool = False
    """Gangs that leave a node are placed by chip score alone, on however many nodes (PAL)."""
    free_moves: bool = False
    """Running jobs move whenever the placement comes out differently, whatever it costs and gains (PAL)."""

    idle_until_reset: bool = False
    """A job that arrived since the last reset is chosen for GPUs that then stay idle (Gavel)."""
    reset_at_zero: bool = False
    """A reset at time 0 counts as none, so that the next change resets again at once (Gavel)."""
    ratio_priority: bool = False
    """Jobs to run are chosen type by type, by share over time received, under every policy (Gavel)."""
    shuffled_types: bool = False
    """Under policies that do not use speeds, types are filled in random order, another every round (Gavel)."""
    round_ends_early: bool = False
    """A round ends with its last slice of whole steps and the next begins there, off the grid (Gavel)."""
    charge_gap: bool = False
    """A slice is charged from the end of the round before, idle time included (Gavel)."""
    remainder_failure: bool = False
    """A gang that has fewer steps left than GPUs fails its slice; the fifth failure in a row ends it (Gavel)."""
    pair_cost_twice: bool = False
    """Each job of a pair pays for all of the GPUs they share (Gavel)."""
    fifo_last_type: bool = False
    """FIFO that does not know speeds gives a new job the last free type by name, room or not (Gavel)."""
    every_pair: bool = False
    """Any two jobs of equal gangs may share GPUs left over; without its co-runner a job gets no more time (Gavel)."""
    draws_stand: bool = False
    """Gandiva keeps pairs it drew, good or bad, until the next computation; those that cannot run idle (Gavel)."""
    any_type: bool = False
    """Policies that do not use speeds give a job time also on types on which it cannot run (Gavel)."""
    centre_of_optima: bool = False
    """Of several optima, the shares in the middle of them, as interior points find, not a corner (Gavel)."""
    finalise_all: bool = False
    """Water filling freezes every job after each pass (Gavel)."""
    makespan_bisection: bool = False
    """The smallest makespan is found to 5 % only, by bisection (Gavel)."""

    @classmethod
    def names(cls) -> tuple[str, ...]:
        return tuple(f.name for f in fields(cls))
