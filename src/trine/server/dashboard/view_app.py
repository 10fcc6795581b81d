"""Serves the dashboard for recorded runs: the same pages, gate and login as a daemon's, all read-only.

The files are read again when they change, so that a run that goes on, or is made anew, is shown as it is.
"""

from __future__ import annotations

import asyncio
import json
import math
import secrets
import socket
import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import structlog
from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from trine.core.errors import InputError
from trine.report.recorded_run import RecordedRun, read_run, version_of
from trine.report.running_record import RunningRunReader, found_record, is_running
from trine.server.api.app import add_error_shapes
from trine.server.api.browser import Browsers
from trine.server.api.errors import ApiError
from trine.server.api.gate import Gate
from trine.server.api.limits import Limits
from trine.server.api.serve import serve
from trine.server.api.sessions import SessionRoutes
from trine.server.api.watches import Watches
from trine.server.dashboard.app_files import app_routes
from trine.server.dashboard.pages import page_routes
from trine.server.dashboard.recorded_board import RecordedBoard
from trine.server.interface import Caller
from trine.server.sessions import Sessions, digest

_MOST_REASONS = 200


class OneReader:
    """The authority of a server that one person started for one self: a token made for this process."""

    def __init__(self) -> None:
        self.token = secrets.token_hex(32)
        self._digest, self._reader = digest(self.token), Caller("reader")

    def caller(self, token: str) -> Caller | None:
        return self.holder(digest(token))

    def holder(self, found: str) -> Caller | None:
        return self._reader if secrets.compare_digest(found, self._digest) else None


class RunFolder:
    """The run in a directory, read again when its files change. One that goes on there hides earlier results."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._board: RecordedBoard | None = None
        self._reader: RunningRunReader | None = None
        self._lock = threading.Lock()

    def board(self) -> RecordedBoard:
        with self._lock:  # requests are answered in threads, and reading a record on is a change
            return self._newest()

    def _newest(self) -> RecordedBoard:
        record, version = found_record(self.folder), version_of(self.folder)
        if record is not None and (not version or is_running(record)):
            try:
                return self._kept(self._read_on(record))
            except InputError:  # it may have ended in the meantime
                version = version_of(self.folder)
                if self._board is None and not version and record.exists():
                    raise
        else:
            self._reader = None
        if self._board is None or (version and version != self._board.run.version):
            self._board = RecordedBoard(read_run(self.folder))
        return self._board

    def _read_on(self, record: Path) -> RecordedRun:
        if self._reader is None or self._reader.path != record:
            self._reader = RunningRunReader(record, self.folder.name)
        return self._reader.read()

    def _kept(self, run: RecordedRun) -> RecordedBoard:
        if self._board is None or self._board.run.version != run.version:
            self._board = RecordedBoard(run)
        return self._board

    def is_running(self) -> bool:
        record = found_record(self.folder)
        return record is not None and is_running(record)


class RunRoutes:
    """Handlers of ``/v1/runs/{run}``; numbers count the directories as they were given."""

    def __init__(self, runs: Sequence[RunFolder]) -> None:
        self._runs = runs

    def routes(self) -> list[Route]:
        paths: dict[str, Callable[[RecordedBoard, Request], Any]] = {
            "span": lambda board, request: _span(board, self._runs[self._number(request)].is_running()),
            "board": lambda board, request: board.at(_at(board, request)),
            "board/reasons": _reasons,
            "usage": lambda board, _: asdict(board.usage()),
            "shares": lambda board, request: [asdict(share) for share in board.shares(_at(board, request))],
            "jobs/{job_id}/explain": lambda board, request: board.explain(_id(request), _at(board, request)),
            "jobs/{job_id}/speed": lambda board, request: board.speed(_id(request), _at(board, request)),
        }
        return [Route(f"/v1/runs/{{run}}/{path}", self._endpoint(answer)) for path, answer in paths.items()]

    def _endpoint(self, answer: Callable[[RecordedBoard, Request], Any]) -> Callable[[Request], Any]:
        async def endpoint(request: Request) -> Response:
            value = await asyncio.to_thread(self._answered, self._number(request), answer, request)
            text = json.dumps(value, separators=(",", ":"), allow_nan=False)
            return Response(text, media_type="application/json", headers={"Cache-Control": "no-store"})

        return endpoint

    def _number(self, request: Request) -> int:
        asked = request.path_params["run"]
        numbers = {str(number): number for number in range(len(self._runs))}
        if asked not in numbers:
            raise ApiError("not-found", f"There is no run {asked[:20]}.")
        return numbers[asked]

    def _answered(self, number: int, answer: Callable[[RecordedBoard, Request], Any], request: Request) -> Any:
        try:
            return answer(self._runs[number].board(), request)
        except InputError as error:
            raise ApiError("unavailable", str(error)) from None


def _span(board: RecordedBoard, running: bool) -> dict[str, Any]:
    """``stopped``: the run was ended from outside before it was over, and this is how far it had come."""
    run = board.run
    unfinished = run.now_s is not None
    return {
        "begin_s": run.begin_s,
        "end_s": run.last_s,
        "version": run.version,
        "running": unfinished and running,
        "stopped": unfinished and not running,
    }


def _reasons(board: RecordedBoard, request: Request) -> dict[str, Any]:
    ids = request.query_params.getlist("job")[:_MOST_REASONS]
    at_s = _at(board, request)
    known = [each for each in ids if each in board.run.job_index]
    return {"reasons": {each: {"code": board.code(each, at_s), "sentence": board.reason(each, at_s)} for each in known}}


def _at(board: RecordedBoard, request: Request) -> float:
    text = request.query_params.get("at", "")
    try:
        at_s = float(text) if text else board.run.last_s
    except ValueError:
        at_s = math.nan
    if math.isnan(at_s):
        raise ApiError("invalid", "Expected a number of seconds.", "at")
    return min(max(at_s, board.run.begin_s), board.run.last_s)


def _id(request: Request) -> str:
    return str(request.path_params["job_id"])


def view_app(folders: Sequence[Path], reader: OneReader, sessions: Sessions) -> FastAPI:
    """The application; every directory must hold a run now, or ``InputError`` says what is missing."""
    runs = [RunFolder(folder) for folder in folders]
    titles = [run.board().run.title for run in runs]
    limits = Limits()
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)
    app.state.watches = Watches(asyncio.sleep, limits)
    browsers = Browsers(sessions, {socket.gethostname()})
    login = SessionRoutes(browsers, titles)
    login.add_to(app.router)
    app.router.routes.extend([*RunRoutes(runs).routes(), *page_routes(), *app_routes(), *login.page_routes()])
    add_error_shapes(app)
    log = structlog.get_logger("view")
    app.add_middleware(Gate, auth=reader, limits=limits, log=log, log_requests=False, shortcuts={}, browsers=browsers)
    return app


async def serve_runs(
    folders: Sequence[Path], listener: socket.socket, stop: asyncio.Event, ready: Callable[[str, str], None]
) -> None:
    """Serve until ``stop``; ``ready`` gets the address and a code to log in."""
    reader = OneReader()
    sessions = Sessions(reader.holder)
    app = view_app(folders, reader, sessions)
    code, _ = sessions.new_code(digest(reader.token))
    await serve(app, listener, stop=stop, ready=lambda url: ready(url, code))
