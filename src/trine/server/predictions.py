"""The daemon's side of predictions: asks for them in a process of their own, keeps the last ones, and keeps score.

The forecaster runs the simulator, which the daemon does not import; it is started by name, with low priority, and has
a budget. Nothing here waits for it but those who asked.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import pickle
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import structlog

from trine.core.atomic_file import write_private
from trine.forecast.calibration import Calibration
from trine.forecast.score import Score, finite
from trine.server.build import Model
from trine.server.interface import Refused
from trine.server.live_job import LiveJob
from trine.server.records import Heard
from trine.server.snapshot import capture
from trine.server.state import LiveState

FORECASTER = "trine.planning.worker"
SCORE_FILE = "predictions.json"
"""In the state directory."""
DRAWS = 100
BUDGET_S = 10.0
"""Processor seconds of one forecast; with many jobs there are fewer draws."""
EVERY_S = 30.0
_REST = 9
"""A forecast that took long is followed by a pause of so many times as long."""
_OUTDATED_S = 300.0
"""After so long predictions are made again although nothing happened: time passes for jobs that run, too."""
_SOON_S = 5.0
"""Who asks waits at most so long for a forecast that has jobs which the last one has not."""
_PATIENCE_S = 120.0
_MOST_ASKED = 4
"""What-ifs of one user at once: each has a processor for seconds, and all forecasts wait for it."""
_ENDING = "the daemon is shutting down"
_ENDED_USED = 5_000
WITHOUT_GPUS = {
    "held": "is held: does not start before it is released",
    "set aside": "is set aside",
    "stopping": "is being stopped for good",
}
"""Why there is nothing to predict of a job, by its state."""


@dataclass(frozen=True, slots=True)
class EndedJob:
    """What the forecaster learns from a job that is over. Seconds."""

    id: str
    user: str
    queue: str
    model: str
    gpus: int
    submitted_s: float
    attained_s: float
    limit_s: float | None
    done: bool


@dataclass(frozen=True)
class ForecastRequest:
    """All that the forecaster needs to know; sent to it as a pickle."""

    live: str
    """The live jobs and all else, as a compact snapshot has them."""
    ended: list[EndedJob]
    model: Model
    now_s: float
    draws: int = DRAWS
    budget_s: float = BUDGET_S
    seed: int = 0
    changes: tuple[str, ...] = ()
    """What to change first, for a comparison with what is; none: predictions only."""
    user: str = "what-if"
    """Whose the jobs are that the changes submit, and in which queue."""
    queue: str = "default"
    heard: tuple[Heard, ...] = ()
    """What running jobs said since the last round, which is on no record yet: their length and speed, mostly."""


@dataclass
class Scores:
    """Predictions that are waiting to come true, and how those before them did: by policy, and kept on disk."""

    path: Path | None = None
    """Where they are kept; ``None``: nowhere."""
    starts: Score = field(default_factory=Score)
    ends: Score = field(default_factory=Score)
    calibrations: dict[str, Calibration] = field(default_factory=dict)
    """By policy: what the intervals are put right by."""
    _open: dict[tuple[str, str], dict[str, float]] = field(default_factory=dict)
    _kept: str = ""

    def __post_init__(self) -> None:
        """Goes on from what is on disk; a file that cannot be read is no reason not to predict."""
        if self.path is None or not self.path.exists():
            return
        # Whatever is in there: half a file, one of another version, or no numbers at all.
        with contextlib.suppress(
            OSError, ValueError, KeyError, TypeError, AttributeError, ArithmeticError, RecursionError
        ):
            body = json.loads(self.path.read_text())
            starts, ends = (Score.of_json(body[name]) for name in ("starts", "ends"))
            found = {str(name): Calibration.of_json(each) for name, each in body["calibrations"].items()}
            still = {(str(job_id), _KINDS[kind]): _times(said) for job_id, kind, said in body["open"]}
            self.starts, self.ends, self.calibrations, self._open = starts, ends, found, still

    def keep(self) -> Callable[[], None]:
        """What the call returns writes to disk what there is now; in another thread, since disks may be slow.

        A full disk costs the score of later restarts, and nothing now."""
        body = {
            "starts": self.starts.as_json(),
            "ends": self.ends.as_json(),
            "calibrations": {name: each.as_json() for name, each in self.calibrations.items()},
            "open": [[job_id, kind, said] for (job_id, kind), said in self._open.items()],
        }
        return lambda: self._write(json.dumps(body))

    def _write(self, text: str) -> None:
        if self.path is not None and text != self._kept:
            with contextlib.suppress(OSError):
                write_private(self.path, text)
                self._kept = text

    def calibrated(self, made: dict[str, Any], policy: str, jobs: Mapping[str, LiveJob]) -> dict[str, Any]:
        """The predictions as they are shown: put right by how earlier ones of this policy came out, and noted."""
        calibration, now_s = self.calibrations.setdefault(policy, Calibration()), made["made_at_s"]
        corrections, shown, right = calibration.corrections(now_s), {}, 0
        for job_id, job in made["jobs"].items():
            shown[job_id] = after = dict(job)
            waits = job["start_s"] is not None
            waited_s = max(now_s - jobs[job_id].submitted_s, 0.0) if waits and job_id in jobs else 0.0
            for kind, name in (("start", "start_s"), ("end" if waits else "rest", "end_s")):
                if job[name] is None:
                    continue
                found = corrections.of(kind, waited_s, job[name])
                if found is not None and kind == "end":  # starts have corrections of their own
                    found = {at: max(found[at], after["start_s"][at]) for at in found}
                if found is not None and kind == "rest" and job_id in jobs:  # no score knows of the time limit
                    latest_s = max(jobs[job_id].time_limit_at_s, job[name]["high"])
                    found = {at: min(found[at], latest_s) for at in found}
                calibration.note(job_id, kind, waited_s, now_s, job[name], found)
                after[name], right = found or job[name], right + (found is not None)
        calibration.forget_all_but(made["jobs"])
        said = sum(job[name] is not None for job in made["jobs"].values() for name in ("start_s", "end_s"))
        return {**made, "jobs": shown, "calibrated": right == said and right > 0}

    def note(self, made: dict[str, Any]) -> None:
        """Of each job the first prediction of its start counts, and the first of its end that was made after it."""
        for job_id, job in made["jobs"].items():
            kind = "start_s" if job["start_s"] is not None else "end_s"
            if job[kind] is not None:
                self._open.setdefault((job_id, kind), job[kind])

    def settle(self, jobs: Mapping[str, LiveJob]) -> None:
        """Compare with what has happened since."""
        for calibration in self.calibrations.values():
            calibration.settle(lambda job_id, kind: _happened(jobs.get(job_id), kind))
        for job_id, kind in list(self._open):
            real_s = _happened(jobs.get(job_id), kind.removesuffix("_s"))
            if real_s is None:
                continue
            said = self._open.pop((job_id, kind))
            if real_s < math.inf:
                score = self.starts if kind == "start_s" else self.ends
                score.add(said["low"], said["median"], said["high"], real_s)

    def as_json(self) -> dict[str, Any] | None:
        found = {"starts": self.starts.summary(), "ends": self.ends.summary()}
        return found if self.starts.held or self.ends.held else None


_KINDS = {"start_s": "start_s", "end_s": "end_s"}


def _times(said: Mapping[str, Any]) -> dict[str, float]:
    """An interval from a file."""
    return {name: finite(said[name]) for name in ("low", "median", "high")}


def _happened(job: LiveJob | None, kind: str) -> float | None:
    """When a job started or ended; ``None``: not yet, infinity: it never will, is not known any more, or says nothing
    of predictions, since the job was held."""
    if job is None:
        return math.inf
    real_s = job.started_s if kind == "start" else job.finished_s
    return math.inf if real_s is None and (not job.live or job.state in ("held", "set aside")) else real_s


class Predictions:
    """Makes them when asked, or again and again (``run``); one forecast at a time."""

    def __init__(
        self,
        state: Callable[[], LiveState],
        model: Callable[[], Model],
        now: Callable[[], float],
        heard: Callable[[], Iterable[Heard]] = tuple,
    ) -> None:
        """``heard``: what running jobs said that is on no record yet."""
        self._state, self._model, self._now, self._heard = state, model, now, heard
        self.last: dict[str, Any] | None = None
        self.scores = Scores()
        self.problem = ""
        """Why the last forecast failed, in a sentence."""
        self.cpu_s = 0.0
        """Processor time of the last forecast."""
        self._rest_s = 0.0
        """No forecast is begun by itself for so long after the last one."""
        self._rested_at_s = 0.0
        """On the clock of the event loop: after a failure that took long, none is begun before, even if asked for."""
        self._one = asyncio.Lock()
        self._asked: Counter[str] = Counter()
        """What-ifs that wait for their answer, by user."""
        self._process: asyncio.subprocess.Process | None = None
        """The forecaster, while it computes."""
        self._closed = False
        self._making: asyncio.Task[dict[str, Any]] | None = None
        """For jobs that came since the last forecast."""

    def keep_score_at(self, path: Path) -> None:
        """Go on from the score on disk, and write it there from now on."""
        self.scores = Scores(path)

    async def run(self, every_s: float = EVERY_S) -> None:
        """Until cancelled: predictions for what has changed."""
        seen_s = -1.0
        while True:
            await asyncio.sleep(max(every_s, self._rest_s))
            state, now = self._state(), self._now()
            try:
                self.scores.settle(state.jobs)
                if state.live and state.cluster is not None and (self._outdated(now) or state.last_s != seen_s):
                    seen_s = state.last_s
                    await self.make()
            except Refused:
                pass
            except Exception as error:  # a bug; forecasts go on, and what is wrong is seen
                structlog.get_logger("forecast").error("forecast", exc_info=error)
                self.problem = f"forecasts failed: {error!r}"

    async def make(self) -> dict[str, Any]:
        """Predictions of now."""
        async with self._one:
            policy, loop = self._state().policy, asyncio.get_running_loop()
            began_s = loop.time()
            try:
                made = await self._ask()
            except Refused as refused:
                # One that hangs would else have the processor nearly all the time.
                took_s = loop.time() - began_s
                self.problem, self._rest_s = str(refused), _REST * took_s if took_s > _SOON_S else 0.0
                self._rested_at_s = loop.time() + self._rest_s
                raise
            self.problem, self.cpu_s = "", made.pop("cpu_s")
            self._rest_s = _REST * self.cpu_s
            jobs = self._state().jobs
            self.scores.settle(jobs)
            made = self.scores.calibrated(made, policy, jobs)
            self.scores.note(made)
            await asyncio.to_thread(self.scores.keep())
            self.last = made
            return made

    def close(self) -> None:
        """The daemon ends: those who wait for a forecast are refused, and no other is begun."""
        self._closed = True
        if self._process is not None and self._process.returncode is None:
            self._process.kill()

    def _outdated(self, now: float) -> bool:
        """They are old, or some job that should have ended by now has not."""
        if self.last is None or now - self.last["made_at_s"] > _OUTDATED_S:
            return True
        live, said = self._state().live, self.last["jobs"]
        return any(_is_over(said[job_id]["end_s"], now) for job_id in live if job_id in said)

    def _lacks_jobs(self, made: dict[str, Any]) -> bool:
        """Jobs came since, and the last forecast is long enough ago for the next one."""
        at_s = made["made_at_s"]
        if self._now() - at_s < self._rest_s:
            return False
        return any(job.submitted_s > at_s and job_id not in made["jobs"] for job_id, job in self._state().live.items())

    async def latest(self) -> dict[str, Any]:
        """The last ones with the score; made now if there are none yet, or none of jobs that came since."""
        made = self.last
        if made is None or not made["draws"]:
            if self.problem and asyncio.get_running_loop().time() < self._rested_at_s:
                raise Refused("unavailable", self.problem)
            made = await self.make() if self._state().live else self._nothing()
        elif self._lacks_jobs(made):
            made = await self._made_soon() or made
        state, now = self._state(), self._now()
        self.scores.settle(state.jobs)
        live = state.live
        jobs = {job_id: _as_of_now(job, live[job_id], now) for job_id, job in made["jobs"].items() if job_id in live}
        return {**made, "jobs": jobs, "score": self.scores.as_json()}

    async def _made_soon(self) -> dict[str, Any] | None:
        """New ones, or ``None`` if that takes long: then they are there for the next who asks."""
        if self._making is None or self._making.done():
            self._making = asyncio.create_task(self.make())
        with contextlib.suppress(Refused, TimeoutError):
            return await asyncio.wait_for(asyncio.shield(self._making), _SOON_S)
        return None

    def _nothing(self) -> dict[str, Any]:
        return {"made_at_s": self._now(), "draws": 0, "calibrated": False, "jobs": {}}

    async def compare(self, changes: Sequence[str], user: str, queue: str) -> dict[str, Any]:
        """What the changes would do, before anything happens; jobs that they submit are of this user and queue."""
        if self._asked[user] >= _MOST_ASKED:
            raise Refused("unavailable", f"{_MOST_ASKED} what-ifs of {user} are being computed; ask again after those")
        self._asked[user] += 1
        try:
            async with self._one:
                found = await self._ask(changes=tuple(changes), user=user, queue=queue)
        finally:
            self._asked[user] -= 1
            self._asked += Counter()  # without users who ask for nothing any more
        del found["cpu_s"]
        return found

    def of_job(self, job_id: str) -> dict[str, Any] | None:
        """What was last predicted of a live job, if anything was, as far as it can still be true."""
        job = self._state().live.get(job_id)
        found: dict[str, Any] | None = None if self.last is None else self.last["jobs"].get(job_id)
        return None if found is None or job is None else _as_of_now(found, job, self._now())

    def metrics(self) -> dict[str, float]:
        """For Prometheus; what is not known yet is left out."""
        found = {"trine_forecast_cpu_seconds": self.cpu_s, "trine_forecast_failing": float(bool(self.problem))}
        if self.last is not None:
            found["trine_forecast_draws"] = float(self.last["draws"])
            found["trine_forecast_age_seconds"] = self._now() - self.last["made_at_s"]
        for kind, score in (("start", self.scores.starts), ("end", self.scores.ends)):
            if score.coverage is not None and score.median_error_s is not None:
                found[f"trine_forecast_{kind}_coverage"] = score.coverage
                found[f"trine_forecast_{kind}_error_seconds"] = score.median_error_s
        return found

    def _request(self, **asked: Any) -> Callable[[], ForecastRequest]:
        """Captures the state of now; what it returns takes long with many jobs, and is called beside the event loop."""
        state = self._state()
        taken, model, now_s = capture(state), self._model(), self._now()
        asked = {"heard": tuple(self._heard()), **asked}
        ended = [_ended(job) for job in list(state.jobs.values())[-_ENDED_USED - len(state.live) :] if not job.live]
        return lambda: ForecastRequest(taken.text(), ended, model, now_s, **asked)

    async def _ask(self, **more: Any) -> dict[str, Any]:
        """The forecaster's answer; what it says of a mistake, or of its own failure, is a refusal.

        ``more``: what the request says besides the state, such as changes."""
        if self._closed:
            raise Refused("unavailable", _ENDING)
        request = self._request(**more)
        asked = await asyncio.to_thread(lambda: pickle.dumps(request()))
        pipe = asyncio.subprocess.PIPE
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", FORECASTER, stdin=pipe, stdout=pipe, stderr=pipe
            )
        except OSError as error:  # no memory or no descriptors: later, perhaps
            raise _failed(f"no forecast: {error.strerror}") from None
        self._process = process
        if self._closed:  # while it was started
            process.kill()
        try:
            out, err = await asyncio.wait_for(process.communicate(asked), _PATIENCE_S)
        except TimeoutError:
            raise _failed(f"no forecast within {_PATIENCE_S:g} s") from None
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode and self._closed:
            raise Refused("unavailable", _ENDING)
        if process.returncode:
            lines = err.decode("utf-8", "replace").strip().splitlines()
            raise _failed(f"the forecaster failed: {lines[-1] if lines else _how_it_ended(process.returncode)}")
        try:
            answer: dict[str, Any] = json.loads(out)
        except ValueError:
            raise _failed("the forecaster failed: its answer is no JSON") from None
        if "refused" in answer:
            raise Refused("invalid", answer["refused"])
        return answer


def _failed(sentence: str) -> Refused:
    return Refused("unavailable", sentence)


def _how_it_ended(returncode: int) -> str:
    return f"signal {-returncode} ended it" if returncode < 0 else f"it ended with status {returncode}"


def _ended(job: LiveJob) -> EndedJob:
    spec = job.spec
    return EndedJob(
        job.id,
        job.user,
        job.queue,
        spec.model,
        spec.gpus.count,
        job.submitted_s,
        job.attained_s,
        spec.max_runtime,
        job.state == "done",
    )


def _as_of_now(said: dict[str, Any], job: LiveJob, now: float) -> dict[str, Any]:
    """What was predicted, without what cannot come true any more: a start or end that should have been by now, and
    those of jobs that were held, or started, since."""
    out = job.state in ("held", "set aside") or (job.state == "stopping" and bool(job.requested_action))
    if out and (said["start_s"] or said["end_s"]):
        return {**said, "start_s": None, "end_s": None, "reason": WITHOUT_GPUS[job.state], "blocker": None}
    start, end = (None if _is_over(said[name], now) else said[name] for name in ("start_s", "end_s"))
    if said["start_s"] is not None and job.started_s is not None:
        return {**said, "start_s": None, "end_s": end, "reason": "has started since", "blocker": None}
    return {**said, "start_s": start, "end_s": end}


def _is_over(times: dict[str, float] | None, now: float) -> bool:
    """The whole interval lies in the past."""
    return times is not None and times["high"] < now
