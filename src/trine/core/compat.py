"""Quirks of the published simulators, by name. Off unless a preset or ``--set compat.NAME=true`` says so."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True)
class Compat:
    """Each flag reproduces one behaviour of published code so that results can be compared per job."""

    wall_attained: bool = False
    """Remaining time is the ideal run time less the wall seconds run, whatever was really done (PAL)."""
    keep_evictions: bool = False
    """Jobs stopped for a job that then does not fit stay stopped for the round (PAL, sticky placements)."""

    pal_bins: bool = False
    """Score bins by the published rule: two plus the number of outliers, over all GPUs at once (PAL)."""
    pal_multi_node: bool = False
    """Gangs that leave a node are placed by chip score alone, on however many nodes (PAL)."""
    free_moves: bool = False
    """Running jobs move whenever the placement comes out differently, whatever it costs and gains (PAL)."""

    @classmethod
    def names(cls) -> tuple[str, ...]:
        return tuple(f.name for f in fields(cls))
