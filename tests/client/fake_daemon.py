"""A daemon made of the standard library: speaks the HTTP API on loopback, schedules nothing, breaks on request."""

from __future__ import annotations

import json
import os
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

TOKEN = "5e" * 32
LIVE = {"waiting", "held", "starting", "running", "stopping"}


class Refusal(Exception):  # noqa: N818
    def __init__(self, status: int, code: str, message: str, field: str = "") -> None:
        self.status, self.error = status, {"code": code, "message": message, "field": field}


class FakeDaemon:
    """The state behind the API. ``break_next`` connections are cut after the request took effect.

    No answer is sent while ``answering`` is not set.
    """

    def __init__(self) -> None:
        self.jobs: dict[str, dict[str, Any]] = {}
        self.specs: dict[str, dict[str, Any]] = {}
        self.logs: dict[str, bytes] = {}
        self.by_request: dict[str, list[str]] = {}
        self.engine_down = ""
        self.nodes = [node("n0", ["1", None]), node("n1", [None, None], flags=("drift",))]
        self.quotas: dict[str, int | None] = {}
        self.break_next = 0
        self.refuse_next: list[tuple[int, str]] = []
        """Status and code of the next answers, sent although the request took effect."""
        self.answering = threading.Event()
        self.answering.set()
        self.cut_logs_after: list[int] = []
        self.requests: list[str] = []
        self.changed = threading.Condition()

    def add(self, state: str = "waiting", **changes: Any) -> str:
        job_id = str(len(self.jobs) + 1)
        self.jobs[job_id] = job(job_id, state) | changes
        self.logs.setdefault(job_id, b"")
        return job_id

    def update(self, job_id: str, **changes: Any) -> None:
        with self.changed:
            self.jobs[job_id] |= changes
            self.changed.notify_all()

    def write(self, job_id: str, text: bytes) -> None:
        with self.changed:
            self.logs[job_id] += text
            self.changed.notify_all()

    def submit(self, body: Any, request_id: str) -> dict[str, Any]:
        if request_id and request_id in self.by_request:
            return {"ids": self.by_request[request_id]}
        if isinstance(body, dict) and "jobs" in body:
            body = [{**spec, "env": {**body["env"], **spec.get("env", {})}} for spec in body["jobs"]]
        specs = body if isinstance(body, list) else [body]
        for spec in specs:
            if _count(spec) > 8:
                raise Refusal(422, "never-fits", "this job asks for more GPUs than there are", "gpus")
        ids = [self.add(name=spec.get("name", "job"), gpus=_count(spec)) for spec in specs]
        self.specs |= dict(zip(ids, specs, strict=True))
        self.by_request[request_id] = ids
        return {"ids": ids}

    def find(self, job_id: str) -> dict[str, Any]:
        if job_id not in self.jobs:
            raise Refusal(404, "not-found", f"there is no job {job_id}")
        return self.jobs[job_id]

    def chosen(self, query: dict[str, list[str]]) -> list[dict[str, Any]]:
        """Jobs that a query is about."""
        states, [user], [name] = query.get("state", LIVE), query.get("user", [""]), query.get("name", [""])
        return [
            found
            for found in self.jobs.values()
            if (found["state"] in states or states == ["all"])
            and user in ("", found["user"])
            and fnmatchcase(found["name"], name or "*")
        ]

    def log_of(self, job_id: str, query: dict[str, list[str]]) -> bytes:
        """The log of the rank that a query names."""
        rank = int(query.get("rank", ["0"])[0])
        if rank >= self.find(job_id)["gpus"]:
            raise Refusal(404, "not-found", f"job {job_id} has no rank {rank}")
        return self.logs.get(f"{job_id}.{rank}", b"") if rank else self.logs[job_id]

    def change(self, job_id: str, verb: str) -> dict[str, Any]:
        found = self.find(job_id)
        if found["state"] not in LIVE:
            raise Refusal(409, "ended", f"job {job_id} has ended ({found['state']})")
        self.update(job_id, state={"cancel": "cancelled", "hold": "held", "release": "waiting"}[verb])
        return found

    def prioritise(self, job_id: str, priority: float) -> dict[str, Any]:
        self.find(job_id)["priority"] = priority
        return self.find(job_id)

    def set_quotas(self, asked: dict[str, Any]) -> list[dict[str, Any]]:
        self.quotas = {name: most for name, most in {**self.quotas, **asked}.items() if most != "default"}
        return self.quota_list()

    def quota_list(self) -> list[dict[str, Any]]:
        return [
            {
                **{"kind": subject.split(":")[0], "name": subject.split(":")[1], "max_gpus": most, "configured": None},
                **{"changed_by": "root", "changed_s": 1.7e9},
            }
            for subject, most in self.quotas.items()
        ]

    def wait(self, job_id: str, timeout_s: float) -> dict[str, Any]:
        found = self.find(job_id)
        with self.changed:
            self.changed.wait_for(lambda: found["state"] not in LIVE, timeout_s)
        return found

    def predictions(self) -> dict[str, Any]:
        start = {"low": 1.7e9, "median": 1.7e9 + 600, "high": 1.7e9 + 7_800}
        waits = {"start_s": start, "end_s": None, "reason": "waits for job 17 to end", "blocker": "17"}
        score = {"starts": {"count": 8, "coverage": 0.75, "median_error_s": 90.0}, "ends": {"count": 0}}
        return {
            "made_at_s": 1.7e9,
            "draws": 100,
            "calibrated": True,
            "score": score,
            "jobs": dict.fromkeys(self.jobs, waits),
        }

    def whatif(self, changes: list[str]) -> dict[str, Any]:
        assert changes
        change = {"low": -3_600.0, "median": -720.0, "high": 0.2}
        counts = {"gain": len(self.jobs), "lose": 0, "same": 0, "mean_change_s": change}
        jobs = {job_id: {"before": None, "after": None, "change_s": change} for job_id in self.jobs}
        return {"made_at_s": 1.7e9, "draws": 50, **counts, "assumed": ["Nothing was measured on a100."], "jobs": jobs}

    def history_page(self, after: int) -> list[dict[str, Any]]:
        """Two ended jobs at a time."""
        ended = [found for found in self.jobs.values() if found["state"] not in LIVE and int(found["id"]) > after]
        return [history_row(found) for found in ended][:2]

    def drain(self, name: str, verb: str, body: Any) -> dict[str, Any]:
        for found in self.nodes:
            if found["name"] == name:
                told = {"reason": "", **(body or {})}
                gpus = [gpu for gpu in found["gpus"] if gpu["index"] in told.get("gpus", ())]
                for gpu in gpus or (found["gpus"] if verb == "undrain" else ()):
                    gpu.update({"drained": verb == "drain", "reason": told["reason"]})
                if not gpus:
                    found.update({"state": "drained" if verb == "drain" else "up", "reason": told["reason"]})
                return found
        raise Refusal(404, "not-found", f"there is no node {name!r}")


def _count(spec: dict[str, Any]) -> int:
    return int(spec.get("gpus", {"count": 1})["count"])


def job(job_id: str, state: str) -> dict[str, Any]:
    reason = {
        "code": "no-free-gpus",
        "sentence": "2 of 4 GPUs are free.",
        "change": "A running job ends.",
        "counts": {},
    }
    return {
        **{"id": job_id, "name": "train", "user": "ada", "queue": "default", "state": state, "gpus": 2},
        **{"model": "resnet50", "app_class": "A", "priority": 0.0, "attempt": 0, "submitted_s": 1.7e9},
        **{"reason": reason, "position": 1 if state == "waiting" else None, "placement": [], "progress": None},
        **{"started_s": None, "finished_s": None, "exit_code": None, "preemptions": 0, "migrations": 0},
        **{"expected_end_s": None, "shares_with": None, "max_runtime_s": None, "run_from_s": None},
    }


def history_row(ended: dict[str, Any]) -> dict[str, Any]:
    same = ("id", "name", "user", "queue", "state", "gpus", "model", "app_class", "priority", "submitted_s")
    return {
        **{key: ended[key] for key in same},
        **{"eligible_s": None, "started_s": 1.7e9 + 60, "finished_s": 1.7e9 + 3660, "wait_s": 60.0, "held_s": 3600.0},
        **{"gpu_h": 2.0, "attempts": 1, "preemptions": 0, "migrations": 0, "lost_s": 0.0, "exit_code": 0},
        **{"array": "", "array_index": None},
    }


def node(name: str, holders: list[str | None], flags: tuple[str, ...] = ()) -> dict[str, Any]:
    gpus = [
        {"index": i, "gpu_type": "v100", "job": holder, "scores": {"A": 1.0, "B": 1.25}, "flags": list(flags)}
        for i, holder in enumerate(holders)
    ]
    return {"name": name, "state": "up", "rack": "r0", "gpus": gpus, "reason": ""}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    daemon: FakeDaemon

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        pass

    def do_GET(self) -> None:
        self._serve(None)

    def do_POST(self) -> None:
        content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self._serve(json.loads(content) if content else None)

    def _serve(self, body: Any) -> None:
        url = urlsplit(self.path)
        with self.daemon.changed:
            self.daemon.requests.append(f"{self.command} {self.path}")
            self.daemon.changed.notify_all()
        try:
            if self.headers.get("Authorization") != f"Bearer {TOKEN}":
                raise Refusal(401, "unauthorized", "the token is not known to this daemon")
            if match := re.fullmatch(r"/v1/jobs/(\w+)/log", url.path):
                self._log(match[1], parse_qs(url.query))
                return
            status, answer = 201 if url.path == "/v1/jobs" and self.command == "POST" else 200, self._answer(url, body)
        except Refusal as refusal:
            status, answer = refusal.status, refusal.error
        if self.daemon.refuse_next and self.command == "POST":
            status, code = self.daemon.refuse_next.pop(0)
            answer = {"code": code, "message": f"the journal: {code}", "field": ""}
        self.daemon.answering.wait(20)
        if self.daemon.break_next > 0:
            self.daemon.break_next -= 1
            self.close_connection = True
            return
        self._send(status, json.dumps(answer).encode())

    def _answer(self, url: Any, body: Any) -> Any:  # noqa: PLR0912 - one branch for each path
        daemon, query = self.daemon, parse_qs(url.query)
        match [self.command, *url.path.strip("/").split("/")]:
            case ["POST", "v1", "jobs"]:
                return daemon.submit(body, self.headers.get("Idempotency-Key", ""))
            case ["GET", "v1", "jobs"]:
                return daemon.chosen(query)[: int(query["limit"][0])]
            case ["GET", "v1", "history"]:
                return daemon.history_page(int(query.get("after", ["0"])[0]))
            case ["GET", "v1", "jobs", "count"]:
                return {"count": len(daemon.chosen(query))}
            case ["GET", "v1", "jobs", job_id, "log", "offset"]:
                lines = daemon.log_of(job_id, query).splitlines(keepends=True)
                tail = int(query["tail"][0])
                return {"offset": sum(map(len, lines[:-tail] if tail else lines))}
            case ["GET", "v1", "jobs", job_id]:
                return daemon.find(job_id)
            case ["GET", "v1", "jobs", job_id, "explain"]:
                story = [{"at_s": 1.7e9, "what": "submitted", "sentence": ""}]
                return {"job": daemon.find(job_id), "sentences": ["It needs 2 GPUs, 1 is free."], "story": story}
            case ["GET", "v1", "jobs", job_id, "wait"]:
                return daemon.wait(job_id, float(query["timeout_s"][0]))
            case ["POST", "v1", "jobs", job_id, "priority"]:
                return daemon.prioritise(job_id, body["priority"])
            case ["GET", "v1", "quotas"]:
                return daemon.quota_list()
            case ["POST", "v1", "quotas"]:
                return daemon.set_quotas(body["quotas"])
            case ["POST", "v1", "jobs", job_id, verb]:
                return daemon.change(job_id, verb)
            case ["GET", "v1", "nodes"]:
                return daemon.nodes
            case ["POST", "v1", "nodes", name, verb]:
                return daemon.drain(name, verb, body)
            case ["GET", "v1", "predictions"]:
                return daemon.predictions()
            case ["POST", "v1", "whatif"]:
                return daemon.whatif(body["changes"])
            case ["GET", "v1", "daemon"]:
                about = {"version": "0", "policy": "las", "placement": "packed", "gpus": 4, "jobs": {"waiting": 1}}
                about |= {"round_s": 60.0, "started_s": 1.7e9, "free_gpus": 3, "problems": []}
                return about | ({"engine_down": daemon.engine_down} if daemon.engine_down else {})
        raise Refusal(404, "not-found", f"there is nothing at {url.path}")

    def _send(self, status: int, content: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def _log(self, job_id: str, query: dict[str, list[str]]) -> None:
        """Chunks until the job ended, or, if a cut is due, until so many bytes were sent."""
        found, offset = self.daemon.find(job_id), int(query.get("offset", ["0"])[0])
        self.daemon.log_of(job_id, query)
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        cut = self.daemon.cut_logs_after.pop(0) if self.daemon.cut_logs_after else None
        while True:
            with self.daemon.changed:
                ended = found["state"] not in LIVE
                piece = self.daemon.log_of(job_id, query)[offset:][:cut]
            if piece:
                self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
                offset += len(piece)
            if cut is not None:
                self.close_connection = True
                return
            if not piece and (ended or "follow" not in query):
                break
            if not piece:
                with self.daemon.changed:
                    self.daemon.changed.wait(0.05)
        self.wfile.write(b"0\r\n\r\n")


@contextmanager
def serving(daemon: FakeDaemon, state: Path) -> Iterator[str]:
    """Serve on a free port, announced in ``state`` as a daemon does; gives the URL."""
    handler = type("Handler", (_Handler,), {"daemon": daemon})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        announce(state, url, os.getpid())
        yield url
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def announce(state: Path, url: str, pid: int) -> None:
    state.mkdir(parents=True, exist_ok=True)
    (state / "api.json").write_text(json.dumps({"url": url, "pid": pid}))
    (state / "token").write_text(TOKEN)
    (state / "token").chmod(0o600)
