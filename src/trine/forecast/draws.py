"""One future: the engine goes on from the present with lengths and arrivals drawn once, in a world of its own."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from trine.core.job import Job
from trine.core.reason import Why
from trine.engine.engine import Engine
from trine.engine.engine_state import EngineError
from trine.engine.events import Decision, Start
from trine.engine.job_table import State
from trine.forecast.arrivals import RecentArrivals
from trine.forecast.engine_copy import EngineImage
from trine.forecast.length_correlation import LengthCorrelation, LevelDraw
from trine.forecast.present import Present, work_done_s
from trine.forecast.queue_run import NEW_JOB, NO_JOB, LimitsMatterError, Queue, RefusedError, is_plain_queue
from trine.forecast.work_history import KnownJob, OpenJobs, WorkDraw, WorkHistory, groups_of
from trine.perf.model import Speed
from trine.policy.fifo import Fifo
from trine.policy.view import Flags, Floats, Ints
from trine.sim.eligibility import Dependents, Eligibility
from trine.sim.recorder import Life, Recorder, Run
from trine.sim.world import World

_ARRIVALS_PER_JOB = 3
_LEAST_ARRIVALS = 300
"""Arrivals of a draw: beyond these none comes, and what is still there ends in a cluster that empties."""

_FINE_ROUNDS = 12
_COARSE, _COARSE_S = 6, 86_400.0
_COARSEST = 30
"""After so many rounds a draw decides only every sixth, and after a day every thirtieth: who is stopped for whom in a
week is not known to the minute, and GPUs that come free are given out at once all the same."""
_HORIZON_S = 14 * 86_400.0
"""Where jobs are stopped for others, a draw ends here; what has not ended by then goes on as fast as it did."""
_LEVEL, _REPETITIONS = 1, 2
"""Name the random streams of the level that lengths have in common, and of jobs that repeat others."""
_LOOK_AGAIN_S = 1_800.0
"""How often a policy that may change its mind with time is asked although nothing happened."""


@dataclass(frozen=True)
class Draw:
    """What became of the present jobs, aligned with ``Future.job_indices``; infinity: not in this future."""

    start_s: Floats
    end_s: Floats
    blockers: Ints
    """Index of the job whose GPUs each got last; ``NO_JOB``: they were free, ``NEW_JOB``: one that is not there yet."""


class Futures:
    """Draws from one present; ``draw(n)`` is the same for the same seed, whatever was drawn before."""

    def __init__(self, present: Present, seed: int = 0) -> None:
        self.present, self._seed, self.by_id = present, seed, present.by_id
        engine = present.engine
        self._image = EngineImage(engine)
        self.history = WorkHistory(present.known)
        self._correlation = LengthCorrelation(self.history, present.known, present.added)
        self.history.learned = self._correlation.learned
        self._arrivals = RecentArrivals(present.known, present.now_s)
        self.job_indices = _tracked(engine, present.dependents)
        """Jobs that run, or wait and take part in decisions, now or once other jobs have ended."""
        table, count = engine.table, len(engine.table)
        self.started = np.array(table.epoch, dtype=np.int64)[self.job_indices] > 0
        self._step_work_s = table.ideal_s[:count] / table.steps[:count]
        self._lives = _lives(engine, set(self.job_indices.tolist()))
        self._done = self._steps_done(engine)
        still_open = [each for each in present.known if not each.ended and not each.exact]
        self._lengths = _DrawnJobs(self.history, [each for each in still_open if each.job.id not in present.added])
        self._lengths_added = _DrawnJobs(self.history, [each for each in still_open if each.job.id in present.added])
        ids = [*self._lengths.ids, *self._lengths_added.ids]
        self._positions = self._correlation.positions(ids)
        there = {job.id: i for i, job in enumerate(table.jobs) if not table.finished[i]}
        self._in_engine: Flags = np.array([job_id in there for job_id in ids], dtype=np.bool_)
        """A change may have taken some away: their lengths are drawn all the same, so that the others keep theirs."""
        self._open_indices: Ints = np.array([there[job_id] for job_id in ids if job_id in there], dtype=np.int64)
        self._until_started = not _may_preempt(engine) and _stay_where_they_are(engine)
        self._settings = present.settings
        if self._until_started:
            # Rounds exist for stops. Without any, GPUs are given out when they come free, here as in a daemon.
            self._settings = replace(present.settings, event_driven=True, fill=False, round_s=_LOOK_AGAIN_S)
        self.queue: Queue | None = None
        """Runs the draws if it can; ``None``: the engine does."""
        waits_for_gpus_alone = not present.dependents.job_indices and not any(
            each.job.after or each.job.array for each in present.known
        )
        if self._until_started and is_plain_queue(engine) and waits_for_gpus_alone:
            costs = replace(self._settings.costs, by_model=engine.costs.by_model)
            self.queue = Queue(engine, present.now_s, _LOOK_AGAIN_S, costs, self._arrivals.job)

    def _steps_done(self, engine: Engine) -> dict[str, float]:
        """By job id, those that run as they are now."""
        work_s, jobs = work_done_s(engine, self.present.now_s), engine.table.jobs
        return {jobs[i].id: work_s[i] / float(self._step_work_s[i]) for i in self.job_indices.tolist()}

    def draw(self, number: int) -> Draw:
        rng = np.random.default_rng([self._seed, number])
        work = WorkDraw(self.history, rng)
        level = self._correlation.draw(np.random.default_rng([self._seed, number, _LEVEL]))
        steps = self._steps(work, level, np.random.default_rng([self._seed, number, _REPETITIONS]))
        if self.queue is not None:
            try:
                return self._run_queue(self.queue, steps, rng, work, level)
            except LimitsMatterError:
                self.queue.open_ended = False
            except RefusedError:
                self.queue = None
            return self.draw(number)
        return self._run(steps, rng, work, level)

    def _steps(self, work: WorkDraw, level: LevelDraw, repetitions: np.random.Generator) -> Floats:
        """What each job really takes in this future, by job index."""
        steps, count = self.present.engine.table.steps[: len(self._lives)].copy(), len(self._lengths.ids)
        own_s = self._lengths.totals_s(work, level, self._positions[:count])
        if self._lengths_added.ids:
            added_s = self._lengths_added.totals_s(work.apart(), level, self._positions[count:])
            own_s = np.concatenate((own_s, added_s))
        if len(own_s):
            totals_s = self._correlation.recurrence.totals_s(self._positions, own_s, repetitions)
            indices = self._open_indices
            steps[indices] = totals_s[self._in_engine] / self._step_work_s[indices]
        return steps

    def _run_queue(
        self, queue: Queue, steps: Floats, rng: np.random.Generator, work: WorkDraw, level: LevelDraw
    ) -> Draw:
        """The same without the engine's books."""
        arrivals = self._arrivals
        starts, ends, blockers = queue.run(steps, arrivals.draw_days(rng, work, self._most_arrivals(), level))
        found = self.job_indices.tolist()
        start_s = [starts[i] if starts[i] >= 0 else math.inf for i in found]
        blocking = np.array([blockers.get(i, NO_JOB) for i in found], dtype=np.int64)
        return Draw(np.array(start_s), np.array([ends[i] for i in found]), blocking)

    def _most_arrivals(self) -> int:
        return _ARRIVALS_PER_JOB * len(self.job_indices) + _LEAST_ARRIVALS

    def _run(self, steps: Floats, rng: np.random.Generator, work: WorkDraw, level: LevelDraw) -> Draw:
        engine = self._image.copy()
        recorder = Recorder(engine.cluster, keep_segments=False)
        recorder.lives += [make(true) for make, true in zip(self._lives, steps.tolist(), strict=True)]
        arriving = _Arriving(self._arrivals.draw(rng, work, self._most_arrivals(), level))
        holders = _Holders(engine, recorder, self.present.now_s)
        tracked = int((~self.started).sum()) if self._until_started else len(self.job_indices)
        world = World(
            engine,
            iter(arriving),
            tracked,
            self._settings,
            recorder,
            log=holders.note,
            true_steps=arriving.steps_of,
            until_started=self._until_started,
            sparing=self._until_started,
            eligibility=self._eligibility(),
        )
        # An error means that nothing runs and nothing comes: those that are left never start as things are.
        with contextlib.suppress(EngineError):
            self._pass_time(world)
        return self._read(world, holders)

    def _eligibility(self) -> Eligibility:
        found, jobs = Eligibility(), self.present.engine.table.jobs
        if self.present.dependents.job_indices:
            found.resume(self.present.dependents, (jobs[i] for i in self.job_indices.tolist()))
        return found

    def _pass_time(self, world: World) -> None:
        """Until all that is asked of this future has happened; with stops, the further away the less often decided."""
        now_s, round_s = self.present.now_s, self._settings.round_s
        if self._until_started:
            world.go_on(now_s)
        elif not world.go_on(now_s, now_s + _FINE_ROUNDS * round_s):
            if self._settings.fill:
                world.use_rounds_of(_COARSE * round_s)
                if world.advance(now_s + _COARSE_S):
                    return
                world.use_rounds_of(_COARSEST * round_s)
            world.advance(now_s + _HORIZON_S)

    def _read(self, world: World, holders: _Holders) -> Draw:
        lives = [world.recorder.lives[i] for i in self.job_indices.tolist()]
        starts = [life.start_s if life.start_s >= 0 else math.inf for life in lives]
        ends = [life.finish_s if life.finish_s >= 0 else self._beyond(world, life) for life in lives]
        blockers = [holders.blocker.get(i, NO_JOB) for i in self.job_indices.tolist()]
        return Draw(np.array(starts), np.array(ends), np.array(blockers, dtype=np.int64))

    def _beyond(self, world: World, life: Life) -> float:
        """When a job ends that had not when the draw was over: at its speed, or at the mean one if it is stopped at
        times."""
        if self._until_started:
            return world.expected_end_s(life)
        before = self._done[life.job.id]
        since_s = world.now - max(self.present.now_s, life.start_s)
        made = world.steps_done(life) - before
        if life.start_s < 0 or made <= 0 or since_s <= 0:
            return math.inf
        return world.now + (life.steps - before - made) * since_s / made


class _DrawnJobs:
    """Jobs that have not ended and whose length is not known; also those that are held, so that the lengths of the
    others do not depend on that."""

    def __init__(self, history: WorkHistory, known: Sequence[KnownJob]) -> None:
        groups = groups_of(known)
        self.ids = [known[at].job.id for _, positions in groups for at in positions.tolist()]
        """In the order in which they are drawn."""
        self._levels = history.levels(one for one, _ in groups)
        work_s = np.array([each.work_s for each in known])
        self._open = OpenJobs(history, [(one, work_s[positions]) for one, positions in groups]) if groups else None

    def totals_s(self, work: WorkDraw, level: LevelDraw, positions: Ints) -> Floats:
        """What each takes in all if it repeats no other; ``positions``: as ``LevelDraw.at`` takes them."""
        work.prepare(self._levels)
        if self._open is None:
            return np.zeros(0)
        return work.totals_s(self._open, level.at(positions), level.own)


def _tracked(engine: Engine, dependents: Dependents) -> Ints:
    offered = {*engine.active_jobs.job_indices().tolist(), *dependents.job_indices}
    return np.array(sorted(offered | engine.assigned.keys()), dtype=np.int64)


def _may_preempt(engine: Engine) -> bool:
    """Jobs are stopped for others; in order of arrival only where there are priorities."""
    in_order = isinstance(engine.policy, Fifo) and not engine.table.prioritised
    return engine.policy.is_preemptive and not in_order


def _stay_where_they_are(engine: Engine) -> bool:
    """A job that runs goes on at the same speed to its end."""
    placement = engine.placement
    return placement.sticky and not placement.weighs_moves and not engine.neighbours.matters and not engine.co_runners


class _Arriving:
    """Jobs to come, with the steps that they really take; the engine is given what such jobs state."""

    def __init__(self, drawn: Iterator[tuple[Job, float]]) -> None:
        self._drawn = drawn
        self._steps: dict[str, float] = {}

    def __iter__(self) -> Iterator[Job]:
        for job, steps in self._drawn:
            self._steps[job.id] = steps
            yield job

    def steps_of(self, job: Job) -> float:
        return self._steps.pop(job.id)


class _Holders:
    """Which job had the GPUs that another gets: what a job waited for in the end."""

    def __init__(self, engine: Engine, recorder: Recorder, now_s: float) -> None:
        self._lives, self._now_s, self._present = recorder.lives, now_s, len(recorder.lives)
        self._holder = [NO_JOB] * engine.cluster.gpu_count
        for job_index, gpus in engine.assigned.items():
            for gpu in gpus:
                self._holder[gpu] = job_index
        self.blocker: dict[int, int] = {}

    def note(self, now: float, decision: Decision) -> None:
        if not isinstance(decision, Start):
            return
        job_index, holder = decision.job_index, self._holder
        if decision.epoch == 1 and job_index < self._present and now > self._now_s:
            before = {holder[gpu] for gpu in decision.gpus} - {NO_JOB}
            last = max(before, key=self._left_s, default=NO_JOB)
            self.blocker[job_index] = last if last < self._present else NEW_JOB
        for gpu in decision.gpus:
            holder[gpu] = job_index

    def _left_s(self, job_index: int) -> tuple[float, int]:
        """When it ended; one that was stopped instead left just now."""
        finish_s = self._lives[job_index].finish_s
        return (finish_s if finish_s >= 0 else math.inf, job_index)


class _LifeMaker:
    """Makes the life of one present job; many draws begin with the same."""

    def __init__(self, engine: Engine, job_index: int) -> None:
        table = engine.table
        self._job, self._index = replace(table.jobs[job_index], tracked=True), job_index
        self._ideal_s = float(table.ideal_s[job_index])
        self._done = float(table.done[job_index])
        self._start_s = float(table.submit_s[job_index]) if table.epoch[job_index] else -1.0
        self._run: tuple[float, tuple[int, ...], Speed, float] | None = None
        if table.state[job_index] is State.RUNNING:
            speed = engine.speed(job_index)._replace(steps_per_s=float(table.rate[job_index]))
            from_s, work_from_s = float(table.run_from_s[job_index]), float(table.work_from_s[job_index])
            self._run = (from_s, engine.ownership.holding[job_index], speed, work_from_s)

    def __call__(self, steps: float) -> Life:
        life = Life(self._job, self._ideal_s, self._index, steps, start_s=self._start_s, done=self._done)
        if self._run is not None:
            from_s, gpus, speed, work_from_s = self._run
            life.run = Run(from_s, gpus, speed, Why.PLACED, work_from_s, from_s, self._done)
        return life


def _lives(engine: Engine, tracked: set[int]) -> list[_LifeMaker | _Ended]:
    ended = _Ended(Life(Job("", 0.0, 1, 1.0, tracked=False), 1.0, -1, 1.0))
    return [_LifeMaker(engine, i) if i in tracked else ended for i in range(len(engine.table))]


class _Ended:
    """In place of jobs that are over, or not to be decided about: nothing happens to them any more."""

    def __init__(self, life: Life) -> None:
        self._life = life

    def __call__(self, steps: float) -> Life:
        del steps
        return self._life
