"""The virtual world: holds the clock, runs the jobs, and drives the engine round by round or event by event.

Stretches in which nothing can change are skipped; the skip is exact because the engine says when it is safe.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace

from trine.assembly.settings import WorldSettings
from trine.core.errors import InputError
from trine.core.job import Job
from trine.core.reason import Why
from trine.engine.engine import Engine
from trine.engine.engine_state import EngineError
from trine.engine.events import (
    Decision,
    Eligible,
    Fill,
    Finished,
    Held,
    Measured,
    Progressed,
    Start,
    Started,
    Stop,
    Stopped,
    Submitted,
    Terminated,
    Tick,
)
from trine.engine.invariants import check
from trine.parity.gavel_clock import RunningJob, SliceClock
from trine.perf.model import Speed
from trine.sim.eligibility import Eligibility
from trine.sim.recorder import Life, LinkLoads, Recorder, Run
from trine.sim.true_speeds import TrueSpeeds

_GRID_SLACK = 1e-9
"""Rounds are compared on an integer grid; a time this close (in rounds) to a boundary counts as on it."""
_MOST_ENDS = 1024
"""So many expected ends are kept at least before those that no longer hold are thrown out."""
_FRUITLESS_STOPS = 50_000
"""So many stops in a row that save no work at all are taken for a standstill."""


class World:
    """Runs ``arrivals`` (in order of submission) until ``tracked`` of them have finished."""

    def __init__(
        self,
        engine: Engine,
        arrivals: Iterator[Job],
        tracked: int,
        settings: WorldSettings,
        recorder: Recorder,
        progress: Callable[[int], None] | None = None,
        log: Callable[[float, Decision], None] | None = None,
        slices: SliceClock | None = None,
        truth: TrueSpeeds | None = None,
        true_steps: Callable[[Job], float] | None = None,
        until_started: bool = False,
        sparing: bool = False,
        eligibility: Eligibility | None = None,
    ) -> None:
        """``slices``: rounds end with their last slice of whole steps instead of on the grid.

        ``truth``: how fast jobs are, where the engine believes otherwise; ``None``: as the engine's model says.
        ``true_steps``: the same for their lengths, which the engine learns when they end; ``None``: as jobs state.
        ``until_started``: the run is over when every tracked job has started.
        ``sparing``: the engine is not asked where only jobs came, none of which fits into what is free.
        ``eligibility``: which jobs wait for others already, where the world goes on from the middle.
        """
        self.engine, self.settings, self.recorder = engine, settings, recorder
        self.now = 0.0
        self.rounds = 0
        self._costs = replace(settings.costs, by_model=engine.costs.by_model)
        self._slack_s = 0.0 if settings.event_driven or settings.fill else _GRID_SLACK * settings.round_s
        self._arrivals = arrivals
        self._next_job = next(arrivals, None)
        self._tracked_left = tracked
        self._ends: list[tuple[float, int, int]] = []
        """Heap of (end of work, job number, leg); entries of earlier legs are stale."""
        self._most_ends = _MOST_ENDS
        self._eligibility = eligibility or Eligibility()
        self._report = progress
        self._log = log
        self._fruitless = 0
        self._slices = slices
        self._idle_rounds = 0
        self._truth = truth
        self._true_steps = true_steps
        self._until_started = until_started
        self._sparing = sparing
        self._unasked = True
        """Something happened that the engine has not been asked about."""
        self._round_due_s = 0.0
        traffic = engine.traffic if truth is None else truth.traffic
        self._traffic = traffic is not None
        self.link_loads: LinkLoads | None = None
        """Kept where a report is wanted."""
        if traffic is not None and recorder.keep_segments:
            self.link_loads = LinkLoads(traffic, len(engine.cluster.nodes), settings.round_s)
        self._only_rounds = not settings.fill or settings.event_driven
        """Whole rounds are all that is decided: free GPUs are not given out in between."""
        self.onlookers: list[Callable[[float], None]] = [] if self.link_loads is None else [self.link_loads.look]
        """Called at every moment, once all that happens in it has."""
        if settings.validate:
            self.onlookers.append(lambda _: check(self.engine))
        self._off_grid = settings.event_driven or settings.fill or self._slices is not None

    @property
    def arrivals_over(self) -> bool:
        """Every job that will ever arrive is there."""
        return self._next_job is None

    def run(self) -> None:
        """Until every tracked job has finished. Each pass of the loop is one moment at which something can change."""
        if self.settings.ideal:
            self._flow()
            return
        self.now = self._on_grid(self._next_job.submit_s) if self._next_job else 0.0
        self.advance()
        self._close_books()
        if not self.settings.event_driven and not self._slices:
            self.rounds = round(self.now / self.settings.round_s) + 1

    def go_on(self, now: float, until_s: float = math.inf) -> bool:
        """As ``advance`` from the middle: the engine has jobs, and the recorder a life for each, running or not."""
        self.now = now
        for job_index, life in enumerate(self.recorder.lives):
            if life.run is not None:
                self._expect_end(job_index, life)
        return self.advance(until_s)

    def use_rounds_of(self, round_s: float) -> None:
        """Decide a whole round so often from now on; in between, ``fill`` gives out what comes free."""
        self.settings = replace(self.settings, round_s=round_s)

    def steps_done(self, life: Life) -> float:
        """Steps that the job has done by now, those of its present run included."""
        run = life.run
        worked_s = 0.0 if run is None else max(0.0, self.now - run.work_from_s)
        return min(life.steps, life.done + (0.0 if run is None else worked_s * run.speed.steps_per_s))

    def advance(self, until_s: float = math.inf) -> bool:
        """Pass every moment up to and including ``until_s``; true if every tracked job is through."""
        while self.now <= until_s:
            # 1. What ended by now gives its GPUs back.
            if self._slices:
                self._end_slices(self._slices)
            else:
                self._finish_jobs()
            if not self._tracked_left:
                return True
            # 2. What was submitted by now takes part in the decision.
            self._submit_jobs()
            if self._truth is not None and not self._truth.measured:
                self._tell_progress()
            # 3. The engine decides: a whole round, or between rounds only on free GPUs.
            if self._unasked or not self._sparing or self.now >= self._round_due_s:
                whole = self._only_rounds or self._at_round()
                decisions = self.engine.handle(Tick(self.now) if whole else Fill(self.now))
                if decisions or self.engine.rerated:
                    self._carry_out(decisions)
                self._unasked, self._round_due_s = False, self.now + self.settings.round_s
            # 4. Jobs slow each other anew once all of this moment stand: the order of starts must not show.
            if self.engine.neighbours.unsettled:
                self.engine.settle_speeds(self.now)
            if self.engine.rerated or self._truth is not None:
                self._rerate()
            if self._slices:
                self._slices.begin(self.now, self._running(), self.engine.co_runners)
            for look in self.onlookers:
                look(self.now)
            # 5. On to the next moment.
            self.rounds += 1
            if self._until_started and not self._tracked_left:
                return True
            self.now = self._next_time()
        return False

    def _flow(self) -> None:
        """The shares themselves, without rounds."""
        from trine.sim.fluid import flow

        jobs = itertools.chain([self._next_job], self._arrivals) if self._next_job else iter(())
        self.now, self.rounds = flow(self.engine, jobs, self._tracked_left, self.recorder, self._report)

    # -- time ----------------------------------------------------------------------------------------------------

    def _next_time(self) -> float:
        """The next moment at which anything can change."""
        if self._slices:
            return self._next_slices_s(self._slices.end_s)
        upcoming = self._next_event_s()
        # Deciding again without an event would change nothing: rounds up to the next event, or up to the time at which
        # policy or placement decide otherwise by themselves, are skipped without a difference in the result.
        if self.engine.can_wait:
            upcoming = min(upcoming, self.engine.wakes_s)
        else:
            wakes_s = self.engine.wakes_s if self._off_grid else math.inf
            if self._sparing and upcoming == math.inf and not self.now < wakes_s < math.inf:
                raise self._stuck()  # nothing runs and nothing comes: rounds would be asked for ever
            upcoming = min(upcoming, self._next_round_s(), wakes_s if wakes_s > self.now else math.inf)
        if upcoming == math.inf:
            raise self._stuck()
        return self._on_grid(upcoming)

    def _next_slices_s(self, end_s: float) -> float:
        """The end of the round, or the next arrival if nothing runs; without either, once more at once."""
        if end_s < math.inf:
            self._idle_rounds = 0
            return end_s
        if self._next_job:
            return max(self.now, self._next_job.submit_s)
        self._idle_rounds += 1
        if self._idle_rounds > 1:
            raise self._stuck()
        return self.now

    def _next_round_s(self) -> float:
        round_s = self.settings.round_s
        if not self.settings.fill:
            return self.now + round_s
        return (math.floor(self.now / round_s + _GRID_SLACK) + 1) * round_s

    def _at_round(self) -> bool:
        """A whole round is decided now; false only between rounds, where GPUs are merely given out."""
        rounds = self.now / self.settings.round_s
        return abs(rounds - round(rounds)) <= _GRID_SLACK

    def _next_event_s(self) -> float:
        ends, lives = self._ends, self.recorder.lives
        # A job that was stopped or re-rated has begun another leg; its earlier entries are dropped when they come up,
        # which is cheaper than looking for them in the heap.
        while ends and (lives[ends[0][1]].leg != ends[0][2] or lives[ends[0][1]].run is None):
            heapq.heappop(ends)
        end_s = ends[0][0] if ends else math.inf
        if self._next_job is not None and self._next_job.submit_s < end_s:
            return self._next_job.submit_s
        return end_s

    def _on_grid(self, time_s: float) -> float:
        """The first decision time at or after ``time_s`` and after now."""
        if self._off_grid:
            return max(time_s, self.now)
        # Counted in whole rounds: sums of round_s would drift away from the boundaries over a million rounds.
        round_s = self.settings.round_s
        boundary = math.ceil(time_s / round_s - _GRID_SLACK)
        if self.rounds:
            boundary = max(boundary, round(self.now / round_s) + 1)
        return boundary * round_s

    def _stuck(self) -> EngineError:
        table = self.engine.table
        waiting = [s for s in range(len(table)) if not table.finished[s]]
        first = waiting[0]
        return EngineError(
            f"nothing runs and nothing will arrive, yet {len(waiting)} jobs wait; "
            f"the first is job {table.jobs[first].id}: {self.engine.explain(first)} "
            f"Its story: {'; '.join(self.engine.story(first))}"
        )

    # -- events --------------------------------------------------------------------------------------------------

    def _submit_jobs(self) -> None:
        job = self._next_job
        until_s = self.now + self._slack_s
        if job is None or job.submit_s > until_s:
            return
        lives, table = self.recorder.lives, self.engine.table
        while job is not None and job.submit_s <= until_s:
            self.engine.handle(Submitted(self.now, job))
            if self._sparing and not self._unasked:
                self._unasked = job.gpus <= self.engine.free.total
            job_index = len(lives)
            if (job.after or job.array or self._eligibility.used) and self._waits_for_others(job_index, job):
                self.engine.handle(Held(self.now, job_index))
            ideal_s = float(table.ideal_s[job_index]) if self._truth is None else self._truth.perf.ideal_s(job)
            steps = job.steps if self._true_steps is None else self._true_steps(job)
            lives.append(Life(job, ideal_s, job_index, steps))
            job = next(self._arrivals, None)
        self._next_job = job

    def _waits_for_others(self, job_index: int, job: Job) -> bool:
        if not self._eligibility.used:
            self._eligibility.begin(life.job for life in self.recorder.lives if life.finish_s < 0)
        return self._eligibility.submitted(job_index, job)

    def _running(self) -> Iterator[RunningJob]:
        for job_index in self.engine.assigned:
            life = self.recorder.lives[job_index]
            if life.run is not None:
                yield RunningJob(job_index, life.job, life.done, life.run.gpus, life.run.speed)

    def _end_slices(self, slices: SliceClock) -> None:
        """Add the whole steps of the round, and give the policy the time that counts for each job."""
        for s in slices.end():
            life = self.recorder.lives[s.job_index]
            self.engine.policy.ran(s.job_index, s.charged_s)
            if not s.failed and s.steps > 0:
                # Steps of a slice are saved before its job is stopped: the stop itself has nothing left to save.
                self._fruitless = 0
                life.done += s.steps
            if life.done >= life.steps:
                self._finish(s.job_index, life, s.end_s)
            elif slices.gives_up(s.job_index):
                self._drop(s.job_index, life, s.end_s)
            else:
                self.engine.handle(Progressed(self.now, s.job_index, life.done, None, 0.0))

    def _drop(self, job_index: int, life: Life, end_s: float) -> None:
        """The job is given up: it ends, unfinished, when it last failed."""
        life.finish_s, life.dropped = end_s, True
        self.recorder.end_run(life, end_s, Why.CANCELLED)
        self._carry_out(self.engine.handle(Terminated(self.now, job_index)))
        if self._eligibility.used:
            self._tell_dependents(life)
        self._tracked_left -= life.job.tracked

    def _tell_dependents(self, life: Life) -> None:
        """Jobs that waited for this one last stand in line from now on."""
        for job_index in self._eligibility.ended(life.job):
            self.recorder.lives[job_index].eligible_s = life.finish_s
            self.engine.handle(Eligible(self.now, job_index))

    def _finish_jobs(self) -> None:
        ends, lives, until_s = self._ends, self.recorder.lives, self.now + self._slack_s
        while ends and ends[0][0] <= until_s and self._tracked_left:
            end_s, job_index, leg = heapq.heappop(ends)
            if lives[job_index].leg == leg and lives[job_index].run is not None:
                self._finish(job_index, lives[job_index], min(end_s, self.now))

    def _finish(self, job_index: int, life: Life, end_s: float) -> None:
        self._fruitless, self._unasked = 0, True
        life.finish_s = self.now if self.settings.finish == "round" else end_s
        life.done = life.steps
        self.recorder.end_run(life, life.finish_s, Why.FINISHED)
        if self._truth is not None:
            self._truth.end(job_index)
        if life.steps != life.job.steps:
            self.engine.handle(Progressed(self.now, job_index, life.steps, life.steps, 0.0))
        decisions = self.engine.handle(Finished(self.now, job_index))
        if decisions or self.engine.rerated:
            self._carry_out(decisions)
        if self._eligibility.used:
            self._tell_dependents(life)
        if life.job.tracked and not self._until_started:
            self._tracked_left -= 1
            if self._report:
                self._report(1)

    def _carry_out(self, decisions: list[Decision]) -> None:
        """Stops release GPUs at once here; starts that waited for them follow in the same moment."""
        todo = deque(decisions)
        while todo:
            decision = todo.popleft()
            if self._log:
                self._log(self.now, decision)
            if isinstance(decision, Start):
                self._start(decision)
            else:
                todo.extend(self._stop(decision))
        if self.engine.rerated:
            self._rerate()

    def _rerate(self) -> None:
        """Jobs that others came to, on their GPUs or links, or left, go on at another speed."""
        changed = self.engine.rerated
        if self._truth is not None:
            changed = changed | dict.fromkeys(self._truth.settle())
        for job_index in changed:
            life = self.recorder.lives[job_index]
            run = life.run
            if run is None or (not self._slices and self._end_s(life, run) <= self.now + self._slack_s):
                continue  # it ends now as well, or did so earlier in the round
            if not self._slices:
                worked_s = max(0.0, self.now - run.work_from_s)
                life.done = min(life.steps, life.done + worked_s * run.speed.steps_per_s)
            speed, neighbour = self._speed(job_index), self.engine.co_runner_of(job_index)
            self.recorder.change_speed(life, self.now, speed, neighbour is not None)
            self._expect_end(job_index, life)
            if self._truth is not None and self._truth.measured:
                self.engine.handle(Measured(self.now, job_index, life.done, speed.steps_per_s, run.work_from_s))
        self.engine.rerated.clear()

    def _tell_progress(self) -> None:
        """How far running jobs are, to an engine that goes on believing in the speeds of its own model."""
        for job_index, life in enumerate(self.recorder.lives):
            if life.run is not None:
                worked_s = max(0.0, self.now - life.run.work_from_s)
                done = min(life.steps, life.done + worked_s * life.run.speed.steps_per_s)
                rate, from_s = self.engine.speed(job_index).steps_per_s, max(self.now, life.run.work_from_s)
                self.engine.handle(Measured(self.now, job_index, done, rate, from_s))

    def _speed(self, job_index: int) -> Speed:
        """How fast the job is on the GPUs it holds, next to the jobs on its GPUs and links."""
        if self._truth is None:
            return self.engine.speed(job_index)
        return self._truth.speed(job_index, self.recorder.lives[job_index].job, self.engine.co_runner_of(job_index))

    def _expect_end(self, job_index: int, life: Life) -> None:
        """Note when the job will have done its work if it stays where it is."""
        run = life.run
        assert run is not None
        life.leg += 1
        heapq.heappush(self._ends, (self._end_s(life, run), job_index, life.leg))
        if len(self._ends) > self._most_ends:
            self._drop_stale_ends()

    def _drop_stale_ends(self) -> None:
        """Long jobs that take turns leave ends of the far future behind, which would come up long after they are."""
        lives = self.recorder.lives
        self._ends[:] = [end for end in self._ends if lives[end[1]].leg == end[2] and lives[end[1]].run is not None]
        heapq.heapify(self._ends)
        self._most_ends = max(_MOST_ENDS, 4 * len(self._ends))

    def _end_s(self, life: Life, run: Run) -> float:
        return run.work_from_s + (life.steps - life.done) / run.speed.steps_per_s

    def expected_end_s(self, life: Life) -> float:
        """When a job that runs will have done its work if it stays where it is; infinity for one that waits."""
        return math.inf if life.run is None else self._end_s(life, life.run)

    def _start(self, decision: Start) -> None:
        job_index = decision.job_index
        life = self.recorder.lives[job_index]
        # Starts are many: straight to the model where that is all there is to ask. Neighbours count from step 4 on.
        if self._truth is None and not self._traffic:
            speed = self.engine.perf.speed(life.job, decision.gpus)
            rate = speed.steps_per_s
        else:
            speed, rate = self._start_speed(job_index, life.job, decision.gpus)
        overhead_s = self._overhead_s(life)
        work_from_s = self.now + overhead_s
        if life.start_s < 0:
            life.start_s = self.now
            self._tracked_left -= self._until_started and life.job.tracked
        life.tier = max(life.tier, speed.tier)
        life.lost_s += overhead_s
        life.run = Run(self.now, decision.gpus, speed, decision.why, work_from_s, self.now, life.done)
        self._expect_end(job_index, life)
        self.engine.handle(Started(self.now, job_index, rate, work_from_s))

    def _start_speed(self, job_index: int, job: Job, gpus: tuple[int, ...]) -> tuple[Speed, float]:
        """How fast the job is on its new GPUs, and the steps/s that the engine sees or believes."""
        if self._truth is None:
            speed = self._speed(job_index)
            return speed, speed.steps_per_s
        self._truth.start(job_index, job, gpus)
        speed = self._speed(job_index)
        return speed, (speed if self._truth.measured else self.engine.speed(job_index)).steps_per_s

    def _overhead_s(self, life: Life) -> float:
        """Seconds until work goes on: nothing at the first start."""
        if life.start_s < 0:
            return 0.0
        return self._costs.migration(life.job) if life.moving else self._costs.restore(life.job)

    def _stop(self, decision: Stop) -> list[Decision]:
        life = self.recorder.lives[decision.job_index]
        run = life.run
        assert run is not None
        before, life.done = life.done, self._safe_steps(life, run)
        self._count_fruitless(life.done > before)
        life.moving = decision.moves
        if decision.moves:
            life.migrations += 1
        else:
            life.preemptions += 1
        self.recorder.end_run(life, self.now, decision.why)
        if self._truth is not None:
            self._truth.end(decision.job_index)
        return self.engine.handle(Stopped(self.now, decision.job_index, life.done))

    def _count_fruitless(self, saved: bool) -> None:
        """Stops more frequent than checkpoints, or than restores take, can keep all jobs from ever getting on."""
        self._fruitless = 0 if saved else self._fruitless + 1
        if self._fruitless >= _FRUITLESS_STOPS:
            raise InputError(
                "sim",
                f"no job saved any work in {_FRUITLESS_STOPS} stops in a row, the last at {self.now:g} s",
                "jobs that are stopped less often than they checkpoint and restore: "
                "a longer round, a smaller checkpoint_every_s or restore_s, or a -sticky placement",
            )

    def _safe_steps(self, life: Life, run: Run) -> float:
        """Steps done by now, less those since the last checkpoint."""
        if self._slices:
            return life.done
        worked_s = max(0.0, self.now - run.work_from_s)
        # A restore that was cut short costs only the time it had.
        life.lost_s -= max(0.0, run.work_from_s - self.now)
        lost_s = self._costs.lost(life.job, worked_s)
        life.lost_s += lost_s
        return min(life.steps, life.done + (worked_s - lost_s) * run.speed.steps_per_s)

    def _close_books(self) -> None:
        """Background jobs may still run when the last tracked one ends; what they do after that counts nowhere."""
        lives = self.recorder.lives
        last_s = max((life.finish_s for life in lives if life.job.tracked), default=self.now)
        for life in lives:
            if life.run is not None:
                self.recorder.end_run(life, max(last_s, life.run.start_s), Why.NOT_DECIDED)
        self.recorder.close()
