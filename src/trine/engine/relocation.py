"""The relocation step of a round with a sticky placement: jobs on slow GPUs, or far apart, move where they gain by it.

Without it a job that once accepted a bad tier keeps it for life. It comes after the waiting jobs were served, on the
GPUs that they left.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from trine.core.reason import Trade
from trine.engine.job_table import State
from trine.engine.planner import Gpus, Moves, Plan, Planner
from trine.policy.base import JobValues, Relocation
from trine.policy.view import Flags, Floats, Ints


class Relocations:
    """Looks for better places; one per engine."""

    def __init__(self, moves: Moves) -> None:
        self.moves = moves
        self._seen: list[list[int]] = []
        """Free GPUs by type and node when places were last looked for."""
        self._failed: dict[int, Gpus] = {}
        """Jobs that had no better place then, with their GPUs. They have none either as long as free GPUs and traffic
        are the same: what is left of their work only shrinks, and with it the gain."""

    def run(
        self,
        planner: Planner,
        job_indices: Ints | Sequence[int],
        rule: Relocation,
        plan: Plan,
        wanted: Ints | None = None,
        values: JobValues | None = None,
    ) -> None:
        """Add to ``plan`` the moves that pay, among ``job_indices``.

        ``wanted``: index of the GPU type of each, -1 or ``None`` for any. ``values``: jobs to which speed is worth most
        come first, and the work left is what the policy expects; without them, every job counts by the time it gains.
        """
        if not planner.free.total:
            return
        job_indices = np.asarray(job_indices, dtype=np.int64)
        positions, young = self._candidates(planner, job_indices, rule, plan, values)
        plan.provisional = plan.provisional or young or len(positions) > rule.tries
        self._forget_if_changed(planner)
        for position in positions[: rule.tries]:
            job_index = int(job_indices[position])
            old = planner.assigned[job_index]
            if self._failed.get(job_index) == old:
                continue
            types = planner.types_for(job_index, -1 if wanted is None else int(wanted[position]))
            better = self._better_place(planner, job_index, old, types, rule, values)
            if better is None:
                self._failed[job_index] = old
                continue
            new, trade = better
            plan.gains_s[job_index], plan.trades[job_index] = trade.gain, trade
            plan.stops.append(job_index)
            plan.starts.append((job_index, new))
            self._forget_if_changed(planner)

    def forget(self) -> None:
        """Places may be faster or slower than when they were last looked at."""
        self._failed.clear()

    def _forget_if_changed(self, planner: Planner) -> None:
        free = [pool.free_on for pool in planner.free.pools]
        if free != self._seen:
            self._seen = [masks.copy() for masks in free]
            self._failed.clear()

    def _candidates(
        self, planner: Planner, job_indices: Ints, rule: Relocation, plan: Plan, values: JobValues | None
    ) -> tuple[list[int], bool]:
        """Positions of the jobs that could gain in the best place of an empty cluster, largest gain first; and whether
        others could but for their quantum."""
        table, now = planner.table, planner.now
        positions = np.flatnonzero(table.assigned[job_indices] & (table.rate[job_indices] > 0))
        mine = job_indices[positions]
        slowdown = table.steps[mine] / table.ideal_s[mine] / table.rate[mine]
        slow = slowdown > rule.slower_than
        positions, mine, slowdown = positions[slow], mine[slow], slowdown[slow]
        if not len(mine):
            return [], False
        assert planner.perf is not None
        best = np.array([planner.perf.best_slowdown(table.jobs[i]) for i in mine.tolist()])
        slowdown = slowdown / best
        gain_s = self._potential_s(planner, mine, slowdown, rule, values)
        # The gain is an upper bound, so a job without one is not looked at: finding a place is what costs time here.
        able = (slowdown > rule.slower_than) & (gain_s > 0) & self._free_to_move(planner, mine, plan)
        old_enough = now - table.run_from_s[mine] >= rule.quantum_s
        worth = 1.0 if values is None else np.array([values.worth[i] for i in mine.tolist()]) * (1.0 - 1.0 / slowdown)
        order = np.argsort(-(gain_s if values is None else worth), kind="stable")
        return positions[order[(able & old_enough)[order]]].tolist(), bool((able & ~old_enough).any())

    def _left_s(self, planner: Planner, job_index: int, steps_per_s: float, values: JobValues | None) -> float:
        """Seconds that the rest of the job takes at this rate."""
        table = planner.table
        if values is None:
            return self.moves.steps_left(table, job_index, planner.now) / steps_per_s
        best = float(table.steps[job_index] / table.ideal_s[job_index])
        return values.left_s[job_index] * best / steps_per_s

    def _potential_s(
        self, planner: Planner, mine: Ints, slowdown: Floats, rule: Relocation, values: JobValues | None
    ) -> Floats:
        """Seconds gained in the best place there could be, less what the move must gain at least; an upper bound."""
        table, moves = planner.table, self.moves
        left_s = np.array([self._left_s(planner, i, float(table.rate[i]), values) for i in mine.tolist()])
        cost_s = np.array([moves.cost_s(table, i) for i in mine.tolist()])
        gain_s: Floats = np.minimum(left_s, rule.horizon_s) * (1.0 - 1.0 / slowdown) - rule.cost_factor * cost_s
        return gain_s

    def _free_to_move(self, planner: Planner, mine: Ints, plan: Plan) -> Flags:
        """Those that run by themselves, and are not stopped for others in this round."""
        state, co_runners, stopped = planner.table.state, planner.co_runners, set(plan.stops)
        able = [state[i] is State.RUNNING and i not in co_runners and i not in stopped for i in mine.tolist()]
        return np.array(able, dtype=np.bool_)

    def _better_place(
        self,
        planner: Planner,
        job_index: int,
        old: Gpus,
        types: Sequence[int],
        rule: Relocation,
        values: JobValues | None,
    ) -> tuple[Gpus, Trade] | None:
        """The fastest place among the free GPUs and its own, taken, with what it gains; ``None`` if none pays."""
        free, table = planner.free, planner.table
        free.give(old)
        best, best_speed = old, 0.0
        for type_index in types:
            new = planner.place_running(job_index, type_index)
            if new is None:
                continue
            free.give(new)  # every type is tried on the same free GPUs
            speed = self.moves.quote(job_index, new)
            if speed > best_speed:
                best, best_speed = new, speed
        free.take(best)
        if best == old:
            return None
        # Predicted against predicted: beside a measured speed, an error of the model would look like a gain, and the
        # job would move to and fro.
        old_speed = self.moves.quote(job_index, old)
        left_s = min(self._left_s(planner, job_index, old_speed, values), rule.horizon_s)
        gain_s = left_s * (1.0 - old_speed / best_speed) if best_speed > 0 else 0.0
        cost_s = self.moves.cost_s(table, job_index)
        if best_speed < old_speed * rule.min_speedup or gain_s <= rule.cost_factor * cost_s:
            free.give(best)
            free.take(old)
            return None
        sentence = f"It is {best_speed / old_speed:.2g} times as fast there; the move costs it {cost_s:.0f} s."
        return best, Trade(gain_s, cost_s, sentence=sentence)
