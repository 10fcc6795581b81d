"""What the cluster did over time: a sample every minute of who held GPUs, who waited and what fair shares would be.

Samples are kept in memory for a week and in a file of the state directory, so that they outlive the daemon. They are
for people to look at: no decision reads them, and losing the file loses nothing else.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path

from trine.core.atomic_file import write_private
from trine.server.access import Access
from trine.server.build import withheld_gpus
from trine.server.interface import Caller, ShareView, UsageView, WaitsView
from trine.server.live_job import LiveJob
from trine.server.state import LiveState

USAGE_FILE = "usage.jsonl"
EVERY_S = 60.0
KEPT = 7 * 24 * 60
_SHARE_SPAN_S = 86_400.0
"""Over which promised and received shares are added up."""
_GAP_S = 5 * EVERY_S
"""A longer pause between samples is time without a daemon, in which nothing is promised."""
_SHORT_S = 10.0
"""Run times below this count as so long in the bounded slowdown."""


@dataclass(frozen=True, slots=True)
class Sample:
    """The cluster at one moment; GPUs of users and queues as (held, asked for, fair share)."""

    at_s: float
    gpus: int
    """In service."""
    held: int
    waiting_jobs: int
    waiting_gpus: int
    users: dict[str, tuple[int, int, float]] = field(default_factory=dict)
    queues: dict[str, tuple[int, int, float]] = field(default_factory=dict)


def sample(state: LiveState, access: Access, at_s: float) -> Sample:
    """The cluster now. A job that is held back by its user asks for nothing."""
    assert state.cluster is not None
    out = {gpu for name, node in state.nodes.items() for gpu in withheld_gpus(state.cluster, name, node)}
    in_service = state.cluster.gpu_count - len(out)
    active = [job for job in state.live.values() if job.holds_gpus or job.state == "waiting"]
    waiting = [job for job in active if job.state == "waiting"]
    weights = {name: queue.weight for name, queue in access.queues.items()}
    return Sample(
        at_s,
        in_service,
        sum(job.spec.gpus.count for job in active if job.holds_gpus),
        len(waiting),
        sum(job.spec.gpus.count for job in waiting),
        _entitled(active, lambda job: job.user, {}, in_service),
        _entitled(active, lambda job: job.queue, weights, in_service),
    )


def _entitled(
    jobs: Iterable[LiveJob], name: Callable[[LiveJob], str], weights: Mapping[str, float], capacity: float
) -> dict[str, tuple[int, int, float]]:
    held: dict[str, int] = {}
    asked: dict[str, int] = {}
    for job in jobs:
        asked[name(job)] = asked.get(name(job), 0) + job.spec.gpus.count
        held[name(job)] = held.get(name(job), 0) + job.spec.gpus.count * job.holds_gpus
    fair = fair_shares(asked, weights, capacity)
    return {each: (held[each], asked[each], round(fair[each], 3)) for each in asked}


def fair_shares(asked: Mapping[str, float], weights: Mapping[str, float], capacity: float) -> dict[str, float]:
    """Weighted max-min: nobody gets more than asked for, and what one leaves goes to the others by weight."""
    shares: dict[str, float] = {}
    left, open_ = float(capacity), dict(asked)
    while open_:
        total = sum(weights.get(name, 1.0) for name in open_)
        per_weight = left / total if total > 0 else 0.0
        content = [name for name, wanted in open_.items() if wanted <= per_weight * weights.get(name, 1.0)]
        if not content:
            return shares | {name: per_weight * weights.get(name, 1.0) for name in open_}
        for name in content:
            shares[name] = float(open_.pop(name))
            left -= shares[name]
    return shares


class UsageHistory:
    """The samples of one daemon, oldest first; without a file they end with the process."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self.samples: deque[Sample] = deque(_read(path) if path else (), KEPT)
        self._since_rewrite = 0

    def add(self, taken: Sample) -> None:
        self.samples.append(taken)
        if self._path is None:
            return
        self._since_rewrite += 1
        if self._since_rewrite >= KEPT:
            self.rewrite()
            return
        with self._path.open("a", encoding="utf-8") as file:
            file.write(_line(taken))

    def rewrite(self) -> None:
        """Leave out of the file what is too old."""
        self._since_rewrite = 0
        if self._path is not None:
            write_private(self._path, "".join(map(_line, self.samples)))

    async def run(self, take: Callable[[], Sample]) -> None:
        """A sample every minute until cancelled. A full disk costs samples in the file, not the daemon."""
        while True:
            try:
                if not self._since_rewrite:
                    self.rewrite()
                self.add(take())
            except OSError:
                pass
            await asyncio.sleep(EVERY_S)

    def shares(
        self,
        now: Sample,
        access: Access,
        caller: Caller,
        span_s: float = _SHARE_SPAN_S,
        gap_s: float = _GAP_S,
    ) -> list[ShareView]:
        """Users and queues with what was promised and received over the last day. Users see themselves."""
        recent = [*(each for each in self.samples if now.at_s - span_s < each.at_s < now.at_s), now]
        queues = sorted({*access.queues, *(name for each in recent for name in each.queues)})
        users = sorted({name for each in recent for name in each.users if caller.sees(name)})
        found = []
        for name in queues:
            queue = access.queues.get(name)
            limits = (queue.max_gpus, queue.max_waiting) if queue else (None, None)
            weight = queue.weight if queue else 1.0
            found.append(_share("queue", name, weight, [(s, s.queues.get(name)) for s in recent], limits, gap_s))
        for name in users:
            of = access.limits(name)
            parts = [(s, s.users.get(name)) for s in recent]
            found.append(_share("user", name, 1.0, parts, (of.max_gpus, of.max_waiting), gap_s))
        return found

    def view(self, jobs: Iterable[LiveJob], now: Sample) -> UsageView:
        """Samples as columns, thinned to some hundreds, and waits and fairness by hour from the jobs themselves."""
        kept = [*self.samples, now]
        kept = kept[:: max(1, len(kept) // 700)]
        return UsageView(
            [each.at_s for each in kept],
            {
                "GPUs in service": [float(each.gpus) for each in kept],
                "GPUs held": [float(each.held) for each in kept],
                "jobs waiting": [float(each.waiting_jobs) for each in kept],
                "GPUs waited for": [float(each.waiting_gpus) for each in kept],
            },
            waits_by_hour(jobs, now.at_s),
        )


def _share(
    kind: str,
    name: str,
    weight: float,
    parts: Sequence[tuple[Sample, tuple[int, int, float] | None]],
    limits: tuple[int | None, int | None],
    gap_s: float,
) -> ShareView:
    """A sample stands for the time up to the next one."""
    promised = received = capacity = 0.0
    for (one, of), (after, _) in pairwise(parts):
        seconds = after.at_s - one.at_s
        if seconds <= gap_s:
            capacity += one.gpus * seconds
            received += (of[0] if of else 0) * seconds
            promised += (of[2] if of else 0.0) * seconds
    held, asked, fair = parts[-1][1] or (0, 0, 0.0)
    total = capacity or 1.0
    shares = (promised / total, received / total, (promised - received) / 3_600.0)
    return ShareView(kind, name, weight, held, asked - held, fair, *shares, *limits)


def waits_by_hour(jobs: Iterable[LiveJob], now_s: float, hours: int = 7 * 24) -> list[WaitsView]:
    """Waits of the jobs that started, and slowdowns and preemptions of those that ended, by the hour of that."""
    first = int(now_s // 3_600) - hours + 1
    waits: dict[int, list[float]] = {}
    slowdowns: dict[int, list[float]] = {}
    preemptions: dict[int, int] = {}
    for job in jobs:
        if job.started_s is not None and job.started_s // 3_600 >= first:
            waits.setdefault(int(job.started_s // 3_600), []).append(job.started_s - job.submitted_s)
        if job.finished_s is not None and job.started_s is not None and job.finished_s // 3_600 >= first:
            hour = int(job.finished_s // 3_600)
            ran_s = max(job.attained_s, _SHORT_S)
            slowdowns.setdefault(hour, []).append(max(1.0, (job.finished_s - job.submitted_s) / ran_s))
            preemptions[hour] = preemptions.get(hour, 0) + job.preemptions
    return [
        _hour(hour, sorted(waits.get(hour, ())), sorted(slowdowns.get(hour, ())), preemptions.get(hour, 0))
        for hour in sorted({*waits, *slowdowns})
    ]


def _hour(hour: int, waits: list[float], slowdowns: list[float], preemptions: int) -> WaitsView:
    middle = (_quantile(waits, 0.5), _quantile(waits, 0.95), _quantile(slowdowns, 0.5), _quantile(slowdowns, 0.95))
    return WaitsView(hour * 3_600.0, len(waits), len(slowdowns), *middle, preemptions)


def _quantile(ordered: list[float], part: float) -> float | None:
    return round(ordered[min(len(ordered) - 1, int(part * len(ordered)))], 3) if ordered else None


def _line(taken: Sample) -> str:
    return json.dumps(asdict(taken), separators=(",", ":")) + "\n"


def _read(path: Path) -> list[Sample]:
    """The samples in a file; lines that are damaged, as after a crash, are left out."""
    found = []
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()[-KEPT:]
    except OSError:
        return []
    for line in lines:
        try:
            found.append(Sample(**json.loads(line)))
        except (ValueError, TypeError):
            continue
    return found
