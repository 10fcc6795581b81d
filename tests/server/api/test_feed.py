"""What viewers are sent when the order of the waiting jobs changes: the moves, from which each has the same order."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from trine.server.api.feed import LOOK_S, Feed, moves
from trine.server.board import JOB_COLUMNS, Board, Row
from trine.server.interface import Caller

ADMIN, ANNA = Caller("root", admin=True), Caller("anna")
ids = st.lists(st.integers(0, 30).map(str), unique=True)


def apply(order: list[str], out: list[str], put: list[Any]) -> list[str]:
    """As a viewer does it."""
    result = [job_id for job_id in order if job_id not in out]
    for index, job_id in put:
        result.insert(index, job_id)
    return result


@given(ids, ids)
def test_the_moves_lead_from_one_order_to_the_other(before: list[str], after: list[str]) -> None:
    out, put = moves(before, after)
    assert apply(before, out, put) == after
    assert (out, put) == ([], []) if before == after else (out or put)


def test_one_job_that_moves_is_one_move() -> None:
    many = [str(i) for i in range(1000)]
    last_first = ["999", *many[:-1]]
    assert moves(many, last_first) == (["999"], [(0, "999")])
    assert moves(many, [*many[1:], "new"]) == (["0"], [(999, "new")])


def row(job_id: str, user: str) -> Row:
    values = dict.fromkeys(JOB_COLUMNS) | {"id": job_id, "user": user, "state": "waiting", "gpus": 1}
    return tuple(values[name] for name in JOB_COLUMNS)


class Boards:
    """A feed of boards with an order that the test sets."""

    def __init__(self, count: int) -> None:
        self.order = [str(i) for i in range(count)]
        self.rows = {job_id: row(job_id, "anna" if int(job_id) % 2 else "ben") for job_id in self.order}
        self.now_s = 0.0
        self.feed = Feed(self._look, clock=lambda: self.now_s)

    def _look(self) -> Board:
        return Board(self.now_s, {}, [], [], dict(self.rows), list(self.order))

    def event(self, caller: Caller, since: str) -> tuple[str, dict[str, Any], int]:
        self.now_s += LOOK_S
        version, text = self.feed.news(caller, since)
        return version, json.loads(text.decode().split("data: ", 1)[1]) if text else {}, len(text)


def test_an_administrator_is_sent_moves_and_a_user_own_ranks() -> None:
    boards = Boards(5000)
    admin, whole, size = boards.event(ADMIN, "")
    anna, own, _ = boards.event(ANNA, "")
    order = whole["order"]
    boards.order = [*boards.order[3:1000], "0", *boards.order[1000:]]
    admin, change, sent = boards.event(ADMIN, admin)
    assert apply(order, change["order_moves"]["out"], change["order_moves"]["in"]) == boards.order
    assert sent < 300 < size
    anna, change, _ = boards.event(ANNA, anna)
    ranks = dict(zip(change["order"], change["ranks"], strict=True))
    assert ranks == {job_id: rank for rank, job_id in enumerate(boards.order, 1) if int(job_id) % 2}
    assert own["order"] != change["order"]


def test_a_new_order_of_all_is_sent_as_it_is() -> None:
    boards = Boards(100)
    admin, _, _ = boards.event(ADMIN, "")
    boards.order.reverse()
    _, change, _ = boards.event(ADMIN, admin)
    assert change["order"] == boards.order and "order_moves" not in change


def test_a_user_is_sent_nothing_of_the_jobs_of_others() -> None:
    boards = Boards(6)
    version, snapshot, _ = boards.event(ANNA, "")
    assert [row[0] for row in snapshot["jobs"]] == ["1", "3", "5"]
    for job_id in ("2", "3"):
        boards.order.remove(job_id)
        del boards.rows[job_id]
    version, change, _ = boards.event(ANNA, version)
    assert change["gone"] == ["3"] and change["order"] == ["1", "5"]
    boards.rows["0"] = (*boards.rows["0"][:-1], 7.0)
    _, change, _ = boards.event(ANNA, version)
    assert "jobs" not in change
    assert boards.event(ADMIN, version)[1]["jobs"][0][0] == "0"
