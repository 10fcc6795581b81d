"""Names for what a share policy keeps, so that it can be written down and given to a policy in another process.

Job numbers differ between two engines, ids do not. A unit is called by the id of its job, a pair by both: ``7+12``.
"""

from __future__ import annotations

import json
import random
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

from trine.perf.throughput import ThroughputTable
from trine.policy.lp.base import Memory
from trine.policy.view import View

JOIN = "+"
UNIT, GOT = "unit/", "got/"
"""What a unit is due, and what it got; apart, because most rounds change only the second."""


class Numbers:
    """Ids to job numbers of the present engine. Jobs that are gone get numbers nobody has: accounts close by rule."""

    def __init__(self, view: View) -> None:
        self._known: dict[str, int] = {view.job(at).id: slot for at, slot in enumerate(view.slots.tolist())}
        self._next = view.beyond

    def __getitem__(self, job_id: str) -> int:
        if job_id not in self._known:
            self._known[job_id] = self._next
            self._next += 1
        return self._known[job_id]

    def members(self, unit: str) -> tuple[int, int]:
        """Job numbers of a unit; the second is -1 for a single job."""
        one, _, other = unit.partition(JOIN)
        return self[one], self[other] if other else -1


def unit_name(members: Sequence[int], view: View) -> str:
    return JOIN.join(view.name(slot) for slot in members if slot >= 0)


def speeds_mark(table: ThroughputTable) -> int:
    """A number that changes with the table: shares that were computed from another one are due."""
    rows = [
        [sorted((repr(key), sorted(row.items())) for key, row in part.items())] for part in (table.rates, table.pairs)
    ]
    return zlib.crc32(json.dumps(rows).encode())


def memory_state(memory: Memory, view: View) -> dict[str, Any]:
    """What the policy itself remembers, without starting points of solvers: those only save time."""
    name = {key: view.name(int(key)) for key in {*memory.held, *memory.partners, *memory.isolated}}
    found: dict[str, Any] = {
        "held": {name[job]: kind for job, kind in memory.held.items()},
        "partners": {name[job]: name.get(mate, mate) for job, mate in memory.partners.items()},
        "isolated": {name[job]: list(told) for job, told in memory.isolated.items()},
    }
    drawn = memory.rng.getstate()
    if drawn != random.Random(memory.seed).getstate():
        found["random"] = [drawn[0], list(drawn[1]), drawn[2]]
    return {key: value for key, value in found.items() if value}


def restore_memory(memory: Memory, kept: Mapping[str, Any], numbers: Numbers) -> None:
    memory.held = {str(numbers[job]): kind for job, kind in kept.get("held", {}).items()}
    memory.partners = {str(numbers[job]): str(numbers[mate]) for job, mate in kept.get("partners", {}).items()}
    memory.isolated = {str(numbers[job]): tuple(told) for job, told in kept.get("isolated", {}).items()}
    if "random" in kept:
        version, inside, spare = kept["random"]
        memory.rng.setstate((version, tuple(inside), spare))
