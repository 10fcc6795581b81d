"""The board as it travels: a snapshot, then what changed, as server-sent events; each made once for all who may see it.

Without viewers nothing is computed: a look at the board is taken when a viewer wants to know, at most every ``LOOK_S``.
"""

from __future__ import annotations

import json
import secrets
import time
from bisect import bisect_left
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from trine.server.board import JOB_COLUMNS, USER_COLUMN, Board, Row
from trine.server.interface import Caller

LOOK_S = 0.4
"""Least seconds between two looks at the board: a change is seen within a second."""
KEPT = 240
"""Changes that are kept for viewers whose connection broke; for longer absences there is a new snapshot."""


@dataclass(slots=True)
class _Change:
    """What is different from the version before."""

    number: int
    now_s: float
    rows: list[Row]
    gone: list[tuple[str, str]]
    """Ids of jobs that are no longer shown, with their users."""
    gpus: list[tuple[int, tuple[str, ...]]]
    layout: dict[str, Any]
    order: list[str] | None
    """The waiting jobs by rank; ``None``: as before."""
    order_before: list[str]
    encoded: dict[str, bytes] = field(default_factory=dict)


class Feed:
    """Versions of one board. ``look`` makes the board of now; ``clock`` is monotonic."""

    def __init__(self, look: Callable[[], Board], clock: Callable[[], float] = time.monotonic) -> None:
        self._look, self._clock = look, clock
        self._boot = secrets.token_hex(4)
        """Numbers of another process mean nothing here."""
        self._number, self._looked_s = 0, -LOOK_S
        self._board: Board | None = None
        self._changes: deque[_Change] = deque(maxlen=KEPT)
        self._snapshots: dict[str, tuple[int, bytes]] = {}

    def news(self, caller: Caller, since: str = "") -> tuple[str, bytes]:
        """The present version, and the events that lead to it from ``since``; none if nothing changed."""
        self._refresh()
        boot, _, text = since.partition(".")
        known = int(text) if boot == self._boot and text.isdecimal() else -1
        version = f"{self._boot}.{self._number}"
        if known == self._number:
            return version, b""
        missing = [change for change in self._changes if change.number > known]
        if known < 0 or len(missing) != self._number - known:
            return version, self._snapshot(caller)
        return version, b"".join(self._encoded(change, caller) for change in missing)

    def _refresh(self) -> None:
        if self._clock() < self._looked_s + LOOK_S:
            return
        self._looked_s = self._clock()
        before, after = self._board, self._look()
        if before is None:
            self._board, self._number = after, 1
            return
        change = _difference(before, after, self._number + 1)
        self._board = after
        if change is not None:
            self._number += 1
            self._changes.append(change)

    def _snapshot(self, caller: Caller) -> bytes:
        board, key = self._board, _visible_to(caller)
        assert board is not None
        number, found = self._snapshots.get(key, (0, b""))
        if number != self._number:
            value = {
                **board.layout(),
                "now_s": board.now_s,
                "columns": JOB_COLUMNS,
                "jobs": [row for row in board.rows.values() if caller.sees(row[USER_COLUMN])],
                "gpus": board.gpu_jobs,
                **_ranks(board.order, board.rows, caller),
            }
            found = self._event("snapshot", self._number, value)
            self._snapshots = {k: v for k, v in self._snapshots.items() if v[0] == self._number}
            self._snapshots[key] = (self._number, found)
        return found

    def _encoded(self, change: _Change, caller: Caller) -> bytes:
        key, board = _visible_to(caller), self._board
        assert board is not None
        if key not in change.encoded:
            value: dict[str, Any] = {"now_s": change.now_s, **change.layout}
            rows = [row for row in change.rows if caller.sees(row[USER_COLUMN])]
            gone = [job_id for job_id, user in change.gone if caller.sees(user)]
            value |= {"jobs": rows} if rows else {}
            value |= {"gone": gone} if gone else {}
            value |= {"gpus": change.gpus} if change.gpus else {}
            if change.order is not None:
                value |= self._reordered(change, caller)
            change.encoded[key] = self._event("change", change.number, value)
        return change.encoded[key]

    def _reordered(self, change: _Change, caller: Caller) -> dict[str, Any]:
        """What tells the new order: for those who see all of it, which jobs left their place and where jobs came in."""
        assert self._board is not None and change.order is not None
        rows = self._board.rows
        if not caller.admin:
            now = _ranks(change.order, rows, caller)
            return {} if now == _ranks(change.order_before, rows, caller) else now
        taken, put = moves(change.order_before, change.order)
        if len(taken) + len(put) > len(change.order) // 2:
            return {"order": change.order}
        return {"order_moves": {"out": taken, "in": put}}

    def _event(self, kind: str, number: int, value: dict[str, Any]) -> bytes:
        data = json.dumps(value, separators=(",", ":"), allow_nan=False)
        return f"event: {kind}\nid: {self._boot}.{number}\ndata: {data}\n\n".encode()


def _visible_to(caller: Caller) -> str:
    """Callers with the same key see the same; no user is called so."""
    return "*" if caller.admin else caller.user


def _ranks(order: list[str], rows: dict[str, Row], caller: Caller) -> dict[str, Any]:
    """The waiting jobs by rank; a user sees the ranks of own jobs among all."""
    if caller.admin:
        return {"order": order}
    own = [(job_id, rank) for rank, job_id in enumerate(order, 1) if _is_seen(job_id, rows, caller)]
    return {"order": [job_id for job_id, _ in own], "ranks": [rank for _, rank in own]}


def _is_seen(job_id: str, rows: dict[str, Row], caller: Caller) -> bool:
    row = rows.get(job_id)
    return row is not None and caller.sees(row[USER_COLUMN])


def moves(before: list[str], after: list[str]) -> tuple[list[str], list[tuple[int, str]]]:
    """What to take out of ``before``, and what to put in then, at which index of the result, in ascending order.

    Jobs that changed places are in both; as many as possible stay where they are.
    """
    known, wanted = set(before), set(after)
    old = [job_id for job_id in before if job_id in wanted]
    new = [job_id for job_id in after if job_id in known]
    staying = known & wanted if old == new else _in_order(old, new)
    taken = [job_id for job_id in before if job_id not in staying]
    return taken, [(index, job_id) for index, job_id in enumerate(after) if job_id not in staying]


def _in_order(old: list[str], new: list[str]) -> set[str]:
    """A longest part of ``new`` that has the order of ``old``, of which it is a permutation (patience sorting)."""
    place = {job_id: index for index, job_id in enumerate(old)}
    ends: list[int] = []
    """Place of the last job of the best part of each length."""
    before: dict[int, int] = {}
    for job_id in new:
        at = place[job_id]
        length = bisect_left(ends, at)
        if length:
            before[at] = ends[length - 1]
        ends[length : length + 1] = [at]
    found, at = set[str](), ends[-1] if ends else -1
    while at >= 0:
        found.add(old[at])
        at = before.get(at, -1)
    return found


def _difference(before: Board, after: Board, number: int) -> _Change | None:
    known = before.rows
    rows = [row for job_id, row in after.rows.items() if (old := known.get(job_id)) is not row and old != row]
    gone = [(job_id, row[USER_COLUMN]) for job_id, row in known.items() if job_id not in after.rows]
    gpus = _changed_gpus(before, after)
    old_layout, layout = before.layout(), after.layout()
    changed = {key: value for key, value in layout.items() if value != old_layout[key]}
    order = after.order if before.order != after.order else None
    if not (rows or gone or gpus or changed or order is not None):
        return None
    return _Change(number, after.now_s, rows, gone, gpus, changed, order, before.order)


def _changed_gpus(before: Board, after: Board) -> list[tuple[int, tuple[str, ...]]]:
    """With another number of GPUs all of them count as changed: the layout that comes with them makes room."""
    if len(before.gpu_jobs) != len(after.gpu_jobs):
        return list(enumerate(after.gpu_jobs))
    pairs = enumerate(zip(before.gpu_jobs, after.gpu_jobs, strict=True))
    return [(gpu, now) for gpu, (old, now) in pairs if old is not now and old != now]
