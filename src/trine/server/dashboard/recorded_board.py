"""A recorded simulation as the dashboard shows it: the board at any time of it, its history, the story of a job.

The same shapes as those of a daemon, so that the same pages show both. Times are seconds of the trace.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any

import numpy as np

from trine.report.recorded_run import RecordedJob, RecordedRun
from trine.report.text import count
from trine.server.access import Access
from trine.server.board import ENDED_KEPT, JOB_COLUMNS, Board, BoardNode, Row
from trine.server.interface import Caller, NotFound, ShareView, UsageView, WaitsView
from trine.server.usage import Sample, UsageHistory, fair_shares

_SAMPLES = 240
_BUCKETS = 60
_NO_USER = "(no user)"
_SHORT_S = 10.0


class RecordedBoard:
    """The boards of one run."""

    def __init__(self, run: RecordedRun) -> None:
        self.run = run
        cluster = run.cluster
        self._nodes = [BoardNode(node.name, node.rack, node.gpu_type, node.gpus) for node in cluster.nodes]
        self._scores = {name: [round(value, 3) for value in values] for name, values in cluster.scores.items()}
        self._about = {"live": False, "policy": run.policy, "placement": run.placement, "problems": ()}

    def at(self, at_s: float) -> dict[str, Any]:
        """The snapshot of this time, as a daemon would send it."""
        board = self.board(at_s)
        span = {"begin_s": self.run.begin_s, "end_s": self.run.last_s}
        return {
            **board.layout(),
            **span,
            "now_s": board.now_s,
            "columns": JOB_COLUMNS,
            "jobs": list(board.rows.values()),
            "gpus": board.gpu_jobs,
            "order": board.order,
        }

    def board(self, at_s: float) -> Board:
        run = self.run
        gpu_jobs: list[tuple[str, ...]] = [()] * run.cluster.gpu_count
        since: dict[int, int] = {}
        for stretch in run.running_at(at_s):
            job = int(run.job_of[stretch])
            since[job] = stretch
            for gpu in run.gpus_of(stretch):
                gpu_jobs[gpu] = (*gpu_jobs[gpu], run.jobs[job].id)
        active = np.flatnonzero((run.submit_s <= at_s) & (at_s < run.finish_s))
        ended = np.flatnonzero(run.finish_s <= at_s)
        recent = ended[np.argsort(run.finish_s[ended], kind="stable")][-ENDED_KEPT:]
        shown = [int(i) for i in (*active, *recent)]
        rows = {run.jobs[i].id: self._row(i, at_s, since.get(i)) for i in shown}
        waiting = [i for i in shown if self._state(i, at_s, since.get(i)) == "waiting"]
        order = [run.jobs[i].id for i in sorted(waiting, key=lambda i: run.jobs[i].submit_s)]
        return Board(at_s, self._about, self._nodes, gpu_jobs, rows, order, self._scores)

    def _state(self, job: int, at_s: float, stretch: int | None) -> str:
        return "done" if self.run.jobs[job].finish_s <= at_s else "running" if stretch is not None else "waiting"

    def _row(self, index: int, at_s: float, stretch: int | None) -> Row:
        job, run = self.run.jobs[index], self.run
        past = [i for i in run.stretches_of.get(index, ()) if run.start_s[i] <= at_s]
        stops = sum(1 for i in past if run.ended[i] == "preempted" and run.end_s[i] <= at_s)
        started = job.start_s if past else None
        finished = job.finish_s if job.finish_s <= at_s else None
        since = float(run.start_s[stretch]) if stretch is not None else None
        known_end = math.isfinite(job.finish_s)
        return (
            *(job.id, "", job.user, "", self._state(index, at_s, stretch), job.gpus, job.model, "", 0.0, len(past)),
            *(job.submit_s, started, finished, since, None, None, None, None),
            *(job.finish_s if stretch is not None and known_end else None, None, stops, 0, None),
        )

    def reason(self, job_id: str, at_s: float) -> str:
        """Why a job is where it is, as far as the files of a run tell."""
        index, job = self._job(job_id)
        run = self.run
        lasting = [i for i in run.stretches_of.get(index, ()) if run.start_s[i] <= at_s < run.end_s[i]]
        if lasting:
            slow = float(run.slowdown[lasting[0]])
            return f"job {job_id} runs on {self._place(lasting[0])}, at {slow:.2f}x the time of a step on median GPUs."
        if at_s >= job.finish_s:
            ran_s = sum(float(run.end_s[i] - run.start_s[i]) for i in run.stretches_of.get(index, ()))
            return (
                f"job {job_id} ended {job.finish_s - job.submit_s:,.0f} s after its submission; it ran {ran_s:,.0f} s."
            )
        if at_s < job.submit_s:
            return f"job {job_id} is not submitted yet."
        running = run.running_at(at_s)
        free = max(run.cluster.gpu_count - sum(len(run.gpus_of(i)) for i in running), 0)
        left = f"{count(free, 'GPU')} of the cluster {'is' if free == 1 else 'are'} free"
        held_up = self._held_up(index, at_s, running) if free >= job.gpus else ""
        return f"job {job_id} waits for {count(job.gpus, 'GPU')}; {left}.{held_up}"

    def _held_up(self, index: int, at_s: float, running: list[int]) -> str:
        """What is known of why a job does not have GPUs that are free: the policy may put others before it, and in
        rounds jobs start at their beginning."""
        run = self.run
        before = (run.submit_s < run.submit_s[index]) & (run.finish_s > at_s)
        before[run.job_of[running]] = False
        said = []
        if waiting := int(before.sum()):
            verb = "waits" if waiting == 1 else "wait"
            said.append(f"{count(waiting, 'job')} submitted before it {verb} as well")
        taken = run.settings.get("settings", {}).get("run", {})
        if not taken.get("event_driven") and "round_s" in taken:
            said.append(f"Jobs start at rounds, here every {taken['round_s']:g} s")
        return "".join(f" {sentence}." for sentence in said)

    def code(self, job_id: str, at_s: float) -> str:
        """In a word, which a filter can be set to: ``placed``, ``preempted`` or ``waits``."""
        index, _ = self._job(job_id)
        run = self.run
        past = [i for i in run.stretches_of.get(index, ()) if run.start_s[i] <= at_s]
        if past and at_s < run.end_s[past[-1]]:
            return run.started[past[-1]]
        return run.ended[past[-1]] if past else "waits"

    def explain(self, job_id: str, at_s: float) -> dict[str, Any]:
        """As ``Explanation``, with the story up to this time."""
        index, job = self._job(job_id)
        run = self.run
        lines = [(job.submit_s, "submitted", "")]
        for i in run.stretches_of.get(index, ()):
            lines.append((float(run.start_s[i]), "started", f"On {self._place(i)} ({run.started[i]})."))
            last = math.isclose(float(run.end_s[i]), job.finish_s)
            lines.append((float(run.end_s[i]), "done" if last else "stopped", f"Reason: {run.ended[i]}."))
        story = [{"at_s": at, "what": what, "sentence": text} for at, what, text in sorted(lines) if at <= at_s]
        lasting = [i for i in run.stretches_of.get(index, ()) if run.start_s[i] <= at_s < run.end_s[i]]
        row = dict(zip(JOB_COLUMNS, self._row(index, at_s, lasting[0] if lasting else None), strict=True))
        placement = self._placement(lasting[0]) if lasting else []
        if at_s < job.submit_s:
            row["state"] = "not submitted"
        shown = {**row, "progress": None, "placement": placement, "position": None, "command": None}
        return {"job": shown, "sentences": [self.reason(job_id, at_s)], "story": story}

    def speed(self, job_id: str, at_s: float) -> dict[str, Any]:
        """As ``SpeedView``; the files tell chip and place as one factor."""
        index, _ = self._job(job_id)
        run = self.run
        of = run.stretches_of.get(index, ())
        held = sum(max(0.0, min(at_s, float(run.end_s[i])) - float(run.start_s[i])) for i in of)
        lasting = [i for i in of if run.start_s[i] <= at_s < run.end_s[i]]
        slow = float(run.slowdown[lasting[0]]) if lasting else None
        none = dict.fromkeys(("expected_steps_per_s", "chip", "sharing", "checkpoint_step", "checkpoint_s"))
        return {**none, "network": slow, "attained_s": held, "lost_s": 0.0}

    def _job(self, job_id: str) -> tuple[int, RecordedJob]:
        index = self.run.job_index.get(job_id)
        if index is None:
            raise NotFound(f"there is no job {job_id!r} in this run")
        return index, self.run.jobs[index]

    def _placement(self, stretch: int) -> list[dict[str, Any]]:
        cluster = self.run.cluster
        nodes: dict[str, list[int]] = {}
        for gpu in self.run.gpus_of(stretch):
            nodes.setdefault(cluster.nodes[cluster.node_of[gpu]].name, []).append(cluster.index_of(gpu))
        return [{"node": name, "gpus": gpus} for name, gpus in nodes.items()]

    def _place(self, stretch: int) -> str:
        return ", ".join(f"{part['node']}:{','.join(map(str, part['gpus']))}" for part in self._placement(stretch))

    # -- over time -------------------------------------------------------------------------------------------------

    @cached_property
    def samples(self) -> list[Sample]:
        """The whole run, at equal distances."""
        return [self._sample(float(at_s)) for at_s in np.linspace(self.run.begin_s, self.run.last_s, _SAMPLES)]

    @cached_property
    def _users(self) -> tuple[list[str], Any]:
        names = sorted({job.user or _NO_USER for job in self.run.jobs})
        number = {name: i for i, name in enumerate(names)}
        return names, np.array([number[job.user or _NO_USER] for job in self.run.jobs], np.int64)

    @cached_property
    def _gpus(self) -> Any:
        return np.array([job.gpus for job in self.run.jobs], np.int64)

    def _sample(self, at_s: float) -> Sample:
        run, (names, user_of) = self.run, self._users
        active = (run.submit_s <= at_s) & (at_s < run.finish_s)
        lasting = (run.start_s <= at_s) & (at_s < run.end_s)
        running = np.zeros(len(run.jobs), bool)
        running[run.job_of[lasting]] = True
        asked = np.bincount(user_of, self._gpus * active, len(names))
        held = np.bincount(user_of, self._gpus * running, len(names))
        wanted = {name: float(n) for name, n in zip(names, asked, strict=True) if n}
        fair = fair_shares(wanted, {}, run.cluster.gpu_count)
        users = {name: (int(held[i]), int(asked[i]), fair[name]) for i, name in enumerate(names) if asked[i]}
        waiting = active & ~running
        total = run.cluster.gpu_count
        return Sample(at_s, total, min(total, int(held.sum())), int(waiting.sum()), int(self._gpus @ waiting), users)

    def shares(self, at_s: float) -> list[ShareView]:
        """Users up to this time; a simulation has no queues with limits."""
        past = UsageHistory()
        past.samples.extend(each for each in self.samples if each.at_s < at_s)
        access = Access(queues={})
        return past.shares(self._sample(at_s), access, Caller("", admin=True), math.inf, math.inf)

    def usage(self) -> UsageView:
        found = self.samples
        columns = {
            "GPUs in service": [float(each.gpus) for each in found],
            "GPUs held": [float(each.held) for each in found],
            "jobs waiting": [float(each.waiting_jobs) for each in found],
            "GPUs waited for": [float(each.waiting_gpus) for each in found],
        }
        return UsageView([each.at_s for each in found], columns, self._waits())

    def _waits(self) -> list[WaitsView]:
        """By equal parts of the run, as a daemon tells them by the hour."""
        run = self.run
        wide_s = max((run.last_s - run.begin_s) / _BUCKETS, 1e-9)
        held = np.bincount(run.job_of, np.minimum(run.end_s, run.last_s) - run.start_s, len(run.jobs))
        stops = np.bincount(run.job_of, [code == "preempted" for code in run.ended], len(run.jobs))
        starts = np.array([job.start_s for job in run.jobs])
        bounded = np.maximum(1.0, (run.finish_s - run.submit_s) / np.maximum(held, _SHORT_S))
        views = []
        for bucket in range(_BUCKETS):
            from_s = run.begin_s + bucket * wide_s
            began = (from_s <= starts) & (starts < from_s + wide_s)
            over = (from_s <= run.finish_s) & (run.finish_s < from_s + wide_s)
            waits = _quantiles((starts - run.submit_s)[began])
            slow = _quantiles(bounded[over])
            views.append(WaitsView(from_s, int(began.sum()), int(over.sum()), *waits, *slow, int(stops[over].sum())))
        return views


def _quantiles(values: Any) -> tuple[float | None, float | None]:
    return (float(np.quantile(values, 0.5)), float(np.quantile(values, 0.95))) if len(values) else (None, None)
