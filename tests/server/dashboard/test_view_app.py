"""The pages of recorded runs ask for a login, and answer what is wrong with a request in a sentence."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from trine.core.cluster import Cluster
from trine.report.running_record import Happened, RunningRecord
from trine.server.dashboard.view_app import OneReader, view_app
from trine.server.sessions import Sessions, digest


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Path]:
    record = RunningRecord(tmp_path / "las")
    record.begin({"policy": "las"}, Cluster.uniform(1, 4, "a100", 1))
    record.add(Happened(60.0, [("1", 0.0, 2, "bert", "ada")], [], [], [("1", 10.0, [0, 1], 1.0, "placed")]))
    yield tmp_path / "las"
    record.remove()


def asked(run: Path, ask: Callable[[httpx.AsyncClient], Coroutine[Any, Any, None]], log_in: bool = True) -> None:
    async def main() -> None:
        reader = OneReader()
        sessions = Sessions(reader.holder)
        app = view_app([run], reader, sessions)
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1:7461") as client:
            if log_in:
                code, _ = sessions.new_code(digest(reader.token))
                answer = await client.post("/ui/login", json={"secret": code})
                client.headers["Trine-Proof"] = answer.json()["proof"]
            await ask(client)

    asyncio.run(main())


@pytest.mark.parametrize("number", ["1", "-1", "01", "x", "9" * 5000])
def test_a_run_that_is_not_shown_is_not_found(run: Path, number: str) -> None:
    async def ask(client: httpx.AsyncClient) -> None:
        assert (await client.get("/v1/runs/0/board")).json()["gpus"] == [["1"], ["1"], [], []]
        for path in ("span", "board", "jobs/1/explain"):
            answer = await client.get(f"/v1/runs/{number}/{path}")
            assert answer.status_code == 404 and len(answer.text) < 200

    asked(run, ask)


def test_without_a_login_nothing_is_told_and_a_wrong_code_says_where_there_is_another(run: Path) -> None:
    async def ask(client: httpx.AsyncClient) -> None:
        assert (await client.get("/v1/runs/0/board")).status_code == 401
        answer = await client.post("/ui/login", json={"secret": "AAAA-BBBB-CCCC"})
        assert answer.status_code == 401 and "`trine view`" in answer.json()["message"]
        assert (await client.get("/ui", headers={"Host": "evil.example"})).status_code == 421

    asked(run, ask, log_in=False)


def test_a_time_that_is_none_is_refused_and_others_are_brought_into_the_run(run: Path) -> None:
    async def ask(client: httpx.AsyncClient) -> None:
        for at in ("nan", "soon"):
            assert (await client.get(f"/v1/runs/0/board?at={at}")).json()["field"] == "at"
        for at, now_s in (("-inf", 0.0), ("1e400", 60.0), ("", 60.0), ("30", 30.0)):
            assert (await client.get(f"/v1/runs/0/board?at={at}")).json()["now_s"] == now_s

    asked(run, ask)
