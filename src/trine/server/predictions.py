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
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trine.core.atomic_file import write_private
from trine.forecast.calibration import Calibration
from trine.forecast.score import Score
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
_ENDING = "the daemon is shutting down"
_ENDED_USED = 5_000
WITHOUT_TIMES = {
    "held": "is held: does not start before it is released",
    "set aside": "is set aside",
}
"""Of jobs in these states no start and no end is predicted; why, in a few words."""


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
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            body = json.loads(self.path.read_text())
            starts, ends = (Score.of_json(body[name]) for name in ("starts", "ends"))
            found = {str(name): Calibration.of_json(each) for name, each in body["calibrations"].items()}
            still = {(str(job_id), str(kind)): dict(said) for job_id, kind, said in body["open"]}
            self.starts, self.ends, self.calibrations, self._open = starts, ends, found, still

    def keep(self) -> None:
        """Write to disk what has changed; a full disk costs the score of later restarts, and nothing now."""
        if self.path is None:
            return
        body = {
            "starts": self.starts.as_json(),
            "ends": self.ends.as_json(),
            "calibrations": {name: each.as_json() for name, each in self.calibrations.items()},
            "open": [[job_id, kind, said] for (job_id, kind), said in self._open.items()],
        }
        text = json.dumps(body)
        if text != self._kept:
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
                calibration.note(job_id, kind, waited_s, now_s, job[name], found)
                after[name], right = found or job[name], right + (found is not None)
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


def _happened(job: LiveJob | None, kind: str) -> float | None:
    """When a job started or ended; ``None``: not yet, infinity: it never will, or is not known any more."""
    if job is None:
        return math.inf
    real_s = job.started_s if kind == "start" else job.finished_s
    return math.inf if real_s is None and not job.live else real_s


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
        self._one = asyncio.Lock()
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
            await asyncio.sleep(max(every_s, _REST * self.cpu_s))
            state, now = self._state(), self._now()
            self.scores.settle(state.jobs)
            if state.live and state.cluster is not None and (self._outdated(now) or state.last_s != seen_s):
                seen_s = state.last_s
                with contextlib.suppress(Refused):
                    await self.make()

    async def make(self) -> dict[str, Any]:
        """Predictions of now."""
        async with self._one:
            policy = self._state().policy
            made = await self._ask()
            jobs = self._state().jobs
            self.scores.settle(jobs)
            made = self.scores.calibrated(made, policy, jobs)
            self.scores.note(made)
            await asyncio.to_thread(self.scores.keep)
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
        if self._now() - at_s < _REST * self.cpu_s:
            return False
        return any(job.submitted_s > at_s and job_id not in made["jobs"] for job_id, job in self._state().live.items())

    async def latest(self) -> dict[str, Any]:
        """The last ones with the score; made now if there are none yet, or none of jobs that came since."""
        made = self.last
        if made is None or not made["draws"]:
            made = await self.make() if self._state().live else self._nothing()
        elif self._lacks_jobs(made):
            made = await self._made_soon() or made
        self.scores.settle(self._state().jobs)
        return {**made, "jobs": self._still(made["jobs"]), "score": self.scores.as_json()}

    def _still(self, said: Mapping[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
        """Without what has happened since the forecast: jobs that ended, starts of jobs that started, and all times of
        jobs that were held."""
        found, live = {}, self._state().live
        for job_id, each in said.items():
            job = live.get(job_id)
            if job is None:
                continue
            if job.state in WITHOUT_TIMES and each["reason"] != WITHOUT_TIMES[job.state]:
                nothing = {"start_s": None, "end_s": None, "blocker": None}
                found[job_id] = {**each, **nothing, "reason": WITHOUT_TIMES[job.state]}
            elif each["start_s"] is not None and job.started_s is not None:
                found[job_id] = {**each, "start_s": None, "reason": "has started since", "blocker": None}
            else:
                found[job_id] = each
        return found

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
        async with self._one:
            return await self._ask(changes=tuple(changes), user=user, queue=queue)

    def of_job(self, job_id: str) -> dict[str, Any] | None:
        """What was last predicted of a job, if anything was; an end that is over and did not come is left out, and so
        is what was said of a job before it was held."""
        said: dict[str, Any] | None = None if self.last is None else self.last["jobs"].get(job_id)
        if said is None or (found := self._still({job_id: said}).get(job_id)) is None:
            return None
        return {**found, "end_s": None} if _is_over(found["end_s"], self._now()) else found

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
            raise self._failed(f"no forecast: {error.strerror}") from None
        self._process = process
        if self._closed:  # while it was started
            process.kill()
        try:
            out, err = await asyncio.wait_for(process.communicate(asked), _PATIENCE_S)
        except TimeoutError:
            raise self._failed(f"no forecast within {_PATIENCE_S:g} s") from None
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode and self._closed:
            raise Refused("unavailable", _ENDING)
        if process.returncode:
            lines = err.decode("utf-8", "replace").strip().splitlines()
            raise self._failed(f"the forecaster failed: {lines[-1] if lines else process.returncode}")
        answer: dict[str, Any] = json.loads(out)
        if "refused" in answer:
            raise Refused("invalid", answer["refused"])
        self.problem, self.cpu_s = "", answer.pop("cpu_s")
        return answer

    def _failed(self, sentence: str) -> Refused:
        self.problem = sentence
        return Refused("unavailable", sentence)


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


def _is_over(times: dict[str, float] | None, now: float) -> bool:
    """The whole interval lies in the past."""
    return times is not None and times["high"] < now
