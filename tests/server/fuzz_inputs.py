"""Random inputs for the live scheduler: job files and requests, progress reports, calls of the API, plug-in files.

All of it follows from the seed of the ``Random`` that is passed in. About half of what is made is sound, the rest is
sound but for a few values, or odd throughout."""

# ruff: noqa: E501 (a method of a plug-in file is one text)

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, NamedTuple
from urllib.parse import quote

NUMBERS: tuple[Any, ...] = (
    0,
    -0.0,
    1,
    -1,
    2,
    3,
    0.5,
    1e-3,
    1e-9,
    9.99e-10,
    5e-324,
    2.2e-308,
    1e6,
    -1e6,
    1e12,
    1e15,
    1e15 + 2,
    10**15,
    10**15 + 1,
    8.64e10,
    1e300,
    1.7976931348623157e308,
    2**31,
    2**53 + 1,
    2**63,
    -(2**63) - 1,
    10**400,
    float("nan"),
    float("inf"),
    float("-inf"),
)
WORDS = (
    "",
    " ",
    "a",
    "café",
    "cafe\u0301",
    "训练",
    "🚀",
    "\u202eevil",
    "a\0b",
    "a\nb",
    "\x1b[31m",
    "\ud800",
    "../../etc",
    "/",
    "//tmp/./x",
    "/tmp/../etc",
    "null",
    "true",
    "NaN",
    "1e5",
    "0x10",
    "1_0",
    "1__0",
    "1_",
    "1_.5",
    "5m",
    "1:30:00",
    "0-0",
    "999-23:59:59",
    "2030-01-31T18:00:00Z",
    "0001-01-01T00:00:00+23:59",
    "9999-12-31T23:59:59-23:59",
    "2030-01-31",
    "'",
    '"',
    "a b && c",
    "x" * 129,
    "x" * 5_000,
    "[",
    "*",
    "?" * 20,
    "%s%n",
    "{}",
    "<script>",
)
KEYS = (
    *("run", "name", "workdir", "env", "gpus", "nodes", "ranks", "model", "class", "queue", "user", "priority"),
    *("checkpoint", "topology", "deadline", "max_runtime", "steps", "retries", "preemptible", "min_run"),
    *("after", "array"),
)
MODELS = ("p", "q", "r", "unknown", "")
USERS = ("anna", "ben", "root")


class Inputs:
    """What comes in, made from one stream of random numbers."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng

    def chance(self, of: float) -> bool:
        return self.rng.random() < of

    def number(self) -> Any:
        """A number at the edge of something, or any other."""
        rng = self.rng
        if self.chance(0.6):
            return rng.choice(NUMBERS)
        made = rng.choice(
            (rng.uniform(-2, 100), rng.randint(-2, 10), 10 ** rng.uniform(-320, 308), rng.getrandbits(70))
        )
        return -made if self.chance(0.1) else made

    def text(self) -> str:
        if self.chance(0.8):
            return self.rng.choice(WORDS)
        return "".join(chr(self.rng.randint(0, 0x2FFF)) for _ in range(self.rng.randint(0, 12)))

    def value(self, depth: int = 0) -> Any:
        """Any JSON value."""
        rng, kind = self.rng, self.rng.random()
        if kind < 0.4:
            return self.number()
        if kind < 0.7:
            return self.text()
        if kind < 0.8 or depth > 3:
            return rng.choice((True, False, None))
        if kind < 0.9:
            return [self.value(depth + 1) for _ in range(rng.choice((0, 1, 2, 5)))]
        if kind < 0.91:
            return [0] * rng.choice((1_000, 5_000))
        keys = [rng.choice((*KEYS, "count", "types", "dir", "grace_s", self.text())) for _ in range(rng.randint(0, 4))]
        return {key: self.value(depth + 1) for key in keys}

    # -- jobs ----------------------------------------------------------------------------------------------------

    def job(self) -> dict[str, Any]:
        """A job as JSON has it: sound, or with a few keys that are odd."""
        made = self.sound_job()
        if self.chance(0.5):
            for _ in range(self.rng.choice((1, 1, 2, 3))):
                key = self.rng.choice((*KEYS, "unknwon")) if self.chance(0.97) else self.text()
                made[key] = self.odd(key)
        return made

    def odd(self, key: str) -> Any:
        """A value that the key may not take; half of the time of the right kind."""
        if self.chance(0.5):
            return self.value()
        if key in ("priority", "deadline", "max_runtime", "steps", "retries", "min_run", "nodes", "gpus"):
            return self.number()
        if key == "checkpoint":
            return {"dir": self.text(), "grace_s": self.number()}
        if key == "topology":
            tiers = ("node", "rack", "network", None)
            return {
                "required": self.rng.choice(tiers),
                "preferred": self.rng.choice(tiers),
                "max_wait_s": self.number(),
            }
        return {self.text(): self.text()} if key == "env" else self.text()

    def sound_job(self) -> dict[str, Any]:
        """A job that is accepted; its numbers may be as large or small as any that are."""
        rng = self.rng
        made: dict[str, Any] = {"run": rng.choice((["work"], "python train.py --lr 0.1", ["a b", "", "é"]))}
        extremes: dict[str, Callable[[], Any]] = {
            "gpus": lambda: rng.choice((1, 1, 1, 2, 2, 3, 4, {"count": 2, "types": "any"}, 2.0)),
            "model": lambda: rng.choice(MODELS),
            "class": lambda: rng.choice(("A", "B", "")),
            "queue": lambda: rng.choice(("default", "small", "")),
            "priority": lambda: rng.choice((0, 1, -1, 1e6, -1e6, 5e-324, -0.0, 0.1)),
            "steps": lambda: rng.choice((1, 1.5, 100, 1e6, 1e12, 1e15)),
            "max_runtime": lambda: rng.choice((1e-3, 1, "5m", 3600, "2:00:00", 1e6, 8.64e10)),
            "deadline": lambda: rng.choice((1e-3, 60, "6h", 8.64e10, *(w for w in WORDS if "T" in w and ":" in w))),
            "retries": lambda: rng.choice((0, 1, 3, 1000)),
            "preemptible": lambda: rng.choice((True, False)),
            "min_run": lambda: rng.choice((1e-3, 60, "10m", 8.64e10)),
            "checkpoint": lambda: {"grace_s": rng.choice((0, -0.0, 5e-324, 30, 3600))},
            "topology": lambda: rng.choice(
                ({"required": "node"}, {"preferred": "node", "max_wait_s": rng.choice((0, 60, 8.64e10))}, {})
            ),
            "array": lambda: rng.choice(("0-2", "0-5%2", 7, "1,5,9%1")),
            # Of the jobs there may be; some are not there, which is refused.
            "after": lambda: [f"{rng.choice(('', 'any:', 'failed:'))}{rng.randint(1, 60)}" for _ in range(2)],
            "nodes": lambda: 1,
            "env": lambda: {"A": "", "LONG": "x" * rng.choice((1, 1000))},
            "name": lambda: rng.choice(("job", "训练 1", "cafe\u0301")),
            "ranks": lambda: rng.choice(("node", "gpu")),
        }
        for key in rng.sample(sorted(extremes), rng.randint(0, 7)):
            made[key] = extremes[key]()
        return made

    def jobs_text(self) -> bytes:
        """The body of a submission, often JSON."""
        rng = self.rng
        if self.chance(0.06):
            return rng.choice(
                (
                    b"",
                    b"null",
                    b"[]",
                    b"{",
                    b"\xff\xfe{}",
                    b"[" * 100_000,
                    b'{"jobs":' * 3,
                    b'{"jobs": ' + b"[" * 990 + b"]" * 990 + b"}",
                    b'{"run": ["w"], "gpus": 1, "gpus": 2}',
                    b'{"run": ["w"], "steps": 1' + b"0" * 5_000 + b"}",
                    b'{"run": ["w"], "steps": 1e999}',
                    b'{"jobs": [{"run": "w", "steps": 1' + b"0" * 4_400 + b"}]}",
                    '\ufeff{"run": "w"}'.encode(),
                    b'{"run": "\\ud800"}',
                    b'{"jobs": [{"run": "\\ud800"}]}',
                )
            )
        if self.chance(0.1):
            whole: Any = {"jobs": [self.job() for _ in range(rng.randint(0, 3))]}
            if self.chance(0.7):
                whole["env"] = self.odd("env") if self.chance(0.3) else {"B": "1"}
            if self.chance(0.1):
                whole[self.text()] = self.value()
        elif self.chance(0.1):
            whole = [self.job() for _ in range(rng.choice((0, 1, 2, 3, 20)))]
        elif self.chance(0.05):
            whole = self.value()
        else:
            whole = self.job()
        body = json.dumps(whole).encode()
        if self.chance(0.04):
            cut = rng.randint(0, len(body))
            body = body[:cut] + bytes(rng.getrandbits(8) for _ in range(rng.randint(0, 3))) + body[cut + 1 :]
        return body

    def job_file(self) -> bytes:
        """A YAML file, more or less."""
        rng, lines = self.rng, list[str]()
        for _ in range(rng.choice((1, 1, 1, 2, 3))):
            lines.append("---" if self.chance(0.5) else "")
            lines += [f"{_yaml_key(key)}: {self._yaml(value)}" for key, value in self.job().items()]
            if self.chance(0.08):
                lines.append(
                    rng.choice(
                        (
                            "gpus: 1\ngpus: 2",
                            "a: &x [1]\nb: *x",
                            "env: &e {A: *e}",
                            "<<: {run: w}",
                            "run: !!python/object:os.system x",
                            "steps: !!int 3",
                            "? [a]\n: b",
                            "gpus:\n\t- 1",
                            "run: " + "[" * 200,
                            "model: |\n  x\n  y",
                            "%YAML 9.9",
                            "...",
                            "a: &a [x,x]\nb: &b [*a,*a]\nc: &c [*b,*b]\nrun: [*c, *c]",
                        )
                    )
                )
        data = "\n".join(lines).encode("utf-8", "surrogatepass")
        if self.chance(0.05):
            cut = rng.randint(0, len(data))
            data = data[:cut] + bytes(rng.getrandbits(8) for _ in range(rng.randint(0, 3))) + data[cut + 1 :]
        return data

    def _yaml(self, value: Any) -> str:
        if isinstance(value, str) and self.chance(0.5):
            return value
        if isinstance(value, float) and self.chance(0.3):
            return self.rng.choice(
                (f"{value:g}", ".inf", ".nan", "1_", "1__0", "1_.5", "1._5", "+1", "1e", "0o7", "1e400")
            )
        return json.dumps(value, ensure_ascii=self.chance(0.5))

    # -- what jobs report ------------------------------------------------------------------------------------------

    def report(self) -> dict[str, Any]:
        """What a job may write into its progress file, as an object."""
        rng = self.rng
        made: dict[str, Any] = {"step": rng.choice((0, 1, 10, 10**15, rng.randint(0, 1000))), "t": 1e6}
        made["steps_per_s"] = rng.choice((0.0, -0.0, 1.0, 1e-9, 1e12, 100.0))
        if self.chance(0.5):
            made["total"] = made["step"] + rng.choice((0, 1, 1000))
        if self.chance(0.5):
            made["checkpoint_step"] = rng.randint(0, made["step"])
        if self.chance(0.5):
            made[rng.choice((*made, "total", "checkpoint_step", "more"))] = self.value()
        if self.chance(0.1):
            made.pop(rng.choice(list(made)))
        return made

    def report_bytes(self) -> bytes:
        rng = self.rng
        if self.chance(0.1):
            return rng.choice(
                (b"", b"[]", b"nul", b"[" * 50_000, b'{"step": 1' + b"0" * 5_000 + b"}", b"\xff", b'{"t":' * 2_000)
            )
        body = json.dumps(self.report()).encode()
        return body[: rng.randint(0, len(body))] if self.chance(0.1) else body

    # -- calls -----------------------------------------------------------------------------------------------------

    def call(self, known: list[str], nodes: list[str]) -> Call:
        """A request: any verb, on something that exists or not."""
        rng = self.rng
        job = (
            rng.choice(known) if known and self.chance(0.85) else rng.choice(("0", "99999", "count", "%00", "a b", "é"))
        )
        node = rng.choice(nodes) if self.chance(0.8) else rng.choice(("nowhere", "..", "%2e%2e", "n" * 200))
        method, path = rng.choice(
            (
                *[("POST", "/v1/jobs")] * 8,
                ("GET", "/v1/jobs"),
                ("GET", "/v1/jobs/count"),
                ("GET", f"/v1/jobs/{job}"),
                ("GET", f"/v1/jobs/{job}/explain"),
                ("GET", f"/v1/jobs/{job}/explain"),
                ("GET", f"/v1/jobs/{job}/wait"),
                ("GET", f"/v1/jobs/{job}/log"),
                ("GET", f"/v1/jobs/{job}/log/offset"),
                ("POST", f"/v1/jobs/{job}/cancel"),
                ("POST", f"/v1/jobs/{job}/hold"),
                ("POST", f"/v1/jobs/{job}/hold"),
                ("POST", f"/v1/jobs/{job}/release"),
                ("POST", f"/v1/jobs/{job}/release"),
                ("POST", f"/v1/jobs/{job}/priority"),
                ("POST", f"/v1/jobs/{job}/priority"),
                ("GET", "/v1/quotas"),
                ("POST", "/v1/quotas"),
                ("GET", "/v1/nodes"),
                ("POST", f"/v1/nodes/{node}/drain"),
                ("POST", f"/v1/nodes/{node}/undrain"),
                ("POST", f"/v1/nodes/{node}/undrain"),
                ("GET", "/v1/daemon"),
                ("GET", "/metrics"),
                ("GET", "/healthz"),
                (rng.choice(("PUT", "DELETE", "HEAD", "OPTIONS", "X")), rng.choice(("/v1/jobs", "/", "/v1/jobs/1"))),
                ("GET", rng.choice(("/", "/v2", "/v1/jobs/", "/openapi.json", f"/v1/jobs/{job}/../..", "/v1//jobs"))),
            )
        )
        return Call(method, path, self._query(path), self._headers(method), self._body(method, path))

    def _query(self, path: str) -> bytes:
        rng, parts = self.rng, list[str]()
        names = {
            "wait": ("timeout_s",),
            "log": ("offset", "follow", "rank"),
            "offset": ("tail", "rank"),
            "jobs": ("state", "limit", "user", "name"),
            "count": ("state", "user", "name"),
        }.get(path.rpartition("/")[2], ())
        if path.endswith("/wait"):
            parts.append(f"timeout_s={rng.choice(('0', '0.01', 'nan', 'inf', '-1', '1e-300', '-0.0', '1e400'))}")
        if path.endswith("offset"):
            parts.append(f"tail={rng.choice((0, 1, 10**9, 10**30, -1, 'x'))}")
        for name in names:
            if not self.chance(0.3) or any(part.startswith(name) for part in parts):
                continue
            words = ("live", "all", "set aside", "running", "true", "anna", "*", "[!a]*", "[z-a]", "[", "-5", "0", "3")
            told = rng.choice(words) if self.chance(0.7) else str(self.value())[:200]
            parts.append(f"{name}={_quoted(told)}")
        if self.chance(0.03):
            parts.append(rng.choice(("x=1", "=", "&&", "%ff=%ff", "state", "limit=1&limit=2", "a" * 300, ";")))
        return "&".join(parts).encode()

    def _headers(self, method: str) -> list[tuple[bytes, bytes]]:
        rng, headers = self.rng, list[tuple[bytes, bytes]]()
        if method == "POST" and self.chance(0.2):
            key = rng.choice((b"k1", b"k2", b"", b"\xff", b"x" * 200, b"a b", bytes([rng.randint(33, 126)])))
            headers.append((b"idempotency-key", key))
        if self.chance(0.05):
            headers.append(rng.choice(((b"content-length", b"-5"), (b"content-type", b"\xff"), (b"x" * 300, b"\0"))))
        return headers

    def _body(self, method: str, path: str) -> bytes:
        if method != "POST":
            return b"" if self.chance(0.97) else b"{}"
        if path.endswith("drain"):
            gpus = self.rng.choice(([0], [1], [0, 1], [5], [], [1.0], None, self.value()))
            body = {"reason": self.text(), "gpus": gpus} if self.chance(0.7) else {"gpus": gpus}
            return json.dumps(body).encode() if self.chance(0.6) else b""
        if path.endswith("priority"):
            return json.dumps({"priority": self.rng.choice((0, 1.5, -3, 1e6, self.value()))}).encode()
        if path == "/v1/quotas":
            subject = self.rng.choice(("user:anna", "queue:default", "queue:none", "user:", self.text()))
            limit = self.rng.choice((0, 1, 4, 1000, None, "default", self.value()))
            return json.dumps({"quotas": {subject: limit}}).encode()
        return self.jobs_text() if path == "/v1/jobs" else b"" if self.chance(0.9) else self.jobs_text()


class Call(NamedTuple):
    """A request without its token."""

    method: str
    path: str
    query: bytes
    headers: list[tuple[bytes, bytes]]
    body: bytes


def _yaml_key(key: str) -> str:
    return key if key.isalpha() else json.dumps(key)


def _quoted(text: str) -> str:
    return quote(text.encode("utf-8", "surrogatepass"))


# -- plug-ins that break every promise -----------------------------------------------------------------------------

_POLICY = """
import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from trine.policy.base import KeyPolicy, Policy, Ranking, Selection

CALLS = [0]


def every(n):
    CALLS[0] += 1
    return CALLS[0] % n == 0


@dataclass
class Hostile(KeyPolicy):
    name: ClassVar[str] = "hostile"
    title: ClassVar[str] = "breaks its promises"

    def key(self, view):
        return view.submit_s

{methods}
"""
_PLACEMENT = """
from dataclasses import dataclass
from typing import ClassVar

from trine.placement.packed import Packed

CALLS = [0]


def every(n):
    CALLS[0] += 1
    return CALLS[0] % n == 0


@dataclass
class Hostile(Packed):
    name: ClassVar[str] = "hostile"
    title: ClassVar[str] = "breaks its promises"

{methods}
"""
_ERRORS = (
    *("ZeroDivisionError", "KeyError", "RecursionError", "MemoryError", "AssertionError", "StopIteration", "OSError"),
    *("UnicodeError", "Exception", "SystemExit", "ValueError", "AttributeError"),
)
_WHEN = (
    "True",
    "(view.gpus == 1).any()",
    "(view.gpus == 2).any()",
    "len(view) > 2",
    "every(3)",
    "(view.done > 5).any()",
)
POLICY_FAULTS = {
    "key raises": "def key(self, view):\n    if {when}:\n        raise {error}('\\ud800 of\\nkey')\n    return view.submit_s",
    "key is nan": "def key(self, view):\n    return np.where({when}, np.nan, view.submit_s)",
    "key is infinite": "def key(self, view):\n    return np.where({when}, -np.inf, np.inf) + 0 * view.submit_s",
    "key is short": "def key(self, view):\n    return view.submit_s[:-1] if {when} else view.submit_s",
    "key is text": "def key(self, view):\n    return np.array(['x'] * len(view)) if {when} else view.submit_s",
    "key is nothing": "def key(self, view):\n    return None if {when} else view.submit_s",
    "key is a matrix": "def key(self, view):\n    return np.ones((len(view), 2)) if {when} else view.submit_s",
    "rank out of range": "def rank(self, view):\n    return Ranking(np.arange(len(view)) + (7 if {when} else 0))",
    "rank negative": "def rank(self, view):\n    return Ranking(np.arange(len(view)) - (1 if {when} else 0))",
    "rank twice": "def rank(self, view):\n    return Ranking(np.repeat(np.arange(len(view)), 2 if {when} else 1))",
    "rank of floats": "def rank(self, view):\n    return Ranking(np.arange(len(view)) * (1.5 if {when} else 1))",
    "rank is odd": "def rank(self, view):\n    return {{'a': 1}} if {when} else Ranking(np.arange(len(view)))",
    "types out of range": "def rank(self, view):\n    n = len(view)\n    return Ranking(np.arange(n), np.full(n, 9 if {when} else -1))",
    "selects strangers": "def rank(self, view):\n    return Selection({{99: 0}}) if {when} else Ranking(np.arange(len(view)))",
    "selects itself as partner": (
        "def rank(self, view):\n    s = int(view.slots[0]) if hasattr(view, 'slots') else 0\n"
        "    return Selection({{s: -1}}, {{s: s}}) if {when} else Ranking(np.arange(len(view)))"
    ),
    "wakes never": "@property\ndef wakes_s(self):\n    return math.nan",
    "wakes in the past": "@property\ndef wakes_s(self):\n    return -math.inf",
    "wakes raises": "@property\ndef wakes_s(self):\n    raise {error}('wakes')",
    "wakes is text": "@property\ndef wakes_s(self):\n    return 'soon'",
    "state raises": "def state(self, view):\n    if {when}:\n        raise {error}('state')\n    return {{}}",
    "state is no JSON": "def state(self, view):\n    return {{'a': object()}} if {when} else {{'a': 1}}",
    "state is a set": "def state(self, view):\n    return {{'a': {{1}}}} if {when} else {{'a': 1}}",
    "state is an array": "def state(self, view):\n    return {{'a': np.arange(3)}}",
    "state is numpy": "def state(self, view):\n    return {{'a': np.float32(1), 'b': np.int64(len(view))}}",
    "state is nan": "def state(self, view):\n    return {{'a': math.nan, 'b': math.inf}}",
    "state has odd keys": "def state(self, view):\n    return {{1: 2, (1, 2): 3}} if {when} else {{}}",
    "state is a list": "def state(self, view):\n    return [1] if {when} else {{}}",
    "state is endless": "def state(self, view):\n    a = []\n    a.append(a)\n    return {{'a': a}} if {when} else {{}}",
    "restore raises": (
        "def state(self, view):\n    return {{'a': len(view)}}\n\n"
        "def restore(self, kept, view, stale):\n    raise {error}('restore')"
    ),
    "prepare raises": "def prepare(self, perf):\n    if every(2):\n        raise {error}('prepare')",
    "prepare always raises": "def prepare(self, perf):\n    raise {error}('prepare')",
    "finished raises": "def finished(self, ended):\n    raise {error}('finished')",
}
PLACEMENT_FAULTS = {
    "place raises": "def place(self, ask, pool):\n    if {when}:\n        raise {error}('place')\n    return super().place(ask, pool)",
    "too few": "def place(self, ask, pool):\n    found = super().place(ask, pool)\n    return found[:-1] if {when} else found",
    "the same twice": "def place(self, ask, pool):\n    found = super().place(ask, pool)\n    return [found[0]] * ask.job.gpus if {when} else found",
    "not free": "def place(self, ask, pool):\n    return list(range(ask.job.gpus)) if {when} else super().place(ask, pool)",
    "negative": "def place(self, ask, pool):\n    return [-1 - i for i in range(ask.job.gpus)] if {when} else super().place(ask, pool)",
    "far away": "def place(self, ask, pool):\n    return [10**9 + i for i in range(ask.job.gpus)] if {when} else super().place(ask, pool)",
    "words": "def place(self, ask, pool):\n    return ['a'] * ask.job.gpus if {when} else super().place(ask, pool)",
    "floats": "def place(self, ask, pool):\n    return [float(g) for g in super().place(ask, pool)]",
    "numpy": "def place(self, ask, pool):\n    import numpy as np\n    return np.array(super().place(ask, pool))",
    "nothing": "def place(self, ask, pool):\n    return None if {when} else super().place(ask, pool)",
    "a generator": "def place(self, ask, pool):\n    return (g for g in super().place(ask, pool))",
    "text": "def place(self, ask, pool):\n    return 'x' * ask.job.gpus if {when} else super().place(ask, pool)",
    "explain raises": "def explain(self, job, gpus, pool):\n    raise {error}('explain')",
    "explain is odd": "def explain(self, job, gpus, pool):\n    return {{1}}",
    "excluded raises": "def excluded(self):\n    raise {error}('excluded')",
    "excluded is odd": "def excluded(self):\n    return frozenset({{-7, 10**9}})",
    "prepare raises": "def prepare(self, perf, rng):\n    raise {error}('prepare')",
}
_PLACE_WHEN = ("True", "ask.job.gpus == 1", "ask.job.gpus == 2", "every(3)", "ask.job.gpus > 2")


def hostile_policy(rng: Random, folder: Path, fault: str = "") -> str:
    """A policy file that fails in one way, always or sometimes."""
    text = POLICY_FAULTS[fault or rng.choice(sorted(POLICY_FAULTS))]
    return _plug_in(folder / f"hostile_{rng.getrandbits(32)}.py", _POLICY, text, rng.choice(_WHEN), rng.choice(_ERRORS))


def hostile_placement(rng: Random, folder: Path, fault: str = "") -> str:
    text, file = PLACEMENT_FAULTS[fault or rng.choice(sorted(PLACEMENT_FAULTS))], f"place_{rng.getrandbits(32)}.py"
    return _plug_in(folder / file, _PLACEMENT, text, rng.choice(_PLACE_WHEN), rng.choice(_ERRORS))


def _plug_in(path: Path, frame: str, method: str, when: str, error: str) -> str:
    body = method.format(when=when, error=error)
    path.write_text(frame.replace("{methods}", "\n".join(f"    {line}".rstrip() for line in body.split("\n"))))
    return str(path)
