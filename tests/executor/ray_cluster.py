"""A real Ray in a network namespace of its own, which reaches nothing and is reached by nobody: one head and one raylet
per node, with labels and with GPUs that are numbers only. All processes are children of the test and end with it.

``python -m tests.executor.ray_cluster 4x2`` keeps one up until it is interrupted, ``... 4x2 -- COMMAND`` for as long as
a command runs, with its address, its token and a Python inside the namespace in the environment."""

from __future__ import annotations

import importlib.util
import os
import secrets
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from tests.executor.cluster_command import keep_up
from tests.executor.driving import DEADLINE_S
from trine.executor.attempt.processes import descendants, marked, send

HOW_TO_GET = "make ray installs it"
_DRIVER = "trine/executor/ray/driver.py"
_HEAD, _PORT, _CLIENT_PORT = "127.0.0.2", 26379, 26400
"""Those who talk to Ray are then clients of the raylet of the head, and not of one that a test may kill."""
_SMALL = [
    *("--block", "--min-worker-port=0", "--max-worker-port=0", "--disable-usage-stats", "--log-style=record"),
    *("--object-store-memory=80000000", "--include-log-monitor=false"),
]

_EVEN = {"RAY_worker_niceness": "0"}
"""Ray gives its workers, and so the ranks below them, a niceness of 15: on a busy machine they wait for all others."""


def missing() -> str:
    """Why no Ray can be started here, empty if it can."""
    if importlib.util.find_spec("ray") is None:
        return f"no Ray in this Python; {HOW_TO_GET}"
    absent = [name for name in ("unshare", "nsenter", "setpriv", "ip") if shutil.which(name) is None]
    if absent:
        return f"no {', '.join(absent)} here; on Debian: apt-get install util-linux iproute2"
    if subprocess.run(["unshare", "--net", "true"], capture_output=True, check=False).returncode:
        return "no right to make a network namespace, without which Ray would listen on all addresses"
    return ""


class RayCluster:
    """``nodes`` nodes called node0, node1 ... with ``gpus`` GPUs each, in racks of two, beside a head
    without GPUs. ``variables`` are further ones of Ray's processes, such as ``RAY_health_check_period_ms``."""

    def __init__(self, nodes: int = 4, gpus: int = 2, *, variables: Sequence[str] = ()) -> None:
        self.names = [f"node{i}" for i in range(nodes)]
        self.gpus, self._variables = gpus, dict(v.split("=", 1) for v in variables)
        # A short path: names of sockets end at 107 characters.
        self.base = Path(tempfile.mkdtemp(prefix="trine-ray-"))
        self.base.chmod(0o755)
        self.token = self.base / "token"
        self.token.write_text(secrets.token_hex(32))
        self.token.chmod(0o600)
        self.python = self.base / "python"
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._heads = 0

    address = f"{_HEAD}:{_PORT}"
    client_address = f"ray://{_HEAD}:{_CLIENT_PORT}"

    def start(self) -> None:
        """Everything; returns when all nodes have joined."""
        self._spawn("namespace", ["unshare", "--net", "sh", "-c", "ip link set lo up && exec sleep infinity"])
        self._write_python()
        self.wait_for(lambda: self.run("ip", "link", "show", "lo").count("UP") > 0, "the network namespace")
        self.start_head()
        for number, name in enumerate(self.names, start=2):  # the head has the first socket
            self._spawn_node(name)
            # They take the next name that is free, so each is let choose before the next one looks.
            self.wait_for(partial(self._has_sockets, number), f"the socket of {name}")
        for name in self.names:
            self.wait_for(partial(self._has_joined, name), name)

    def stop(self) -> None:
        """End every process, with all that they still run, and remove the directory."""
        for name in [*self.names, "head", "namespace"]:
            self.kill_machine(name)
        for pid in marked(f"RAY_AUTH_TOKEN_PATH={self.token}"):  # whose parents were gone already
            send(pid, signal.SIGKILL)
        shutil.rmtree(self.base, ignore_errors=True)

    # -- processes ---------------------------------------------------------------------------------------------------

    def start_head(self) -> None:
        """Each time with an empty memory: Ray keeps it in the process of the head alone."""
        self._log("head").unlink(missing_ok=True)
        self._heads += 1  # a directory of its own: Ray would take what it finds there for a head that runs
        home = f"--temp-dir={self.base / f's{self._heads}'}"
        ports = [f"--port={_PORT}", f"--ray-client-server-port={_CLIENT_PORT}", home, f"--node-ip-address={_HEAD}"]
        # Without cores: it would start as many workers for everybody who connects.
        self._spawn_ray("head", "--head", *ports, "--num-cpus=0", "--num-gpus=0", "--include-dashboard=false")
        self.wait_for(lambda: self._has_joined("head"), "the head")

    def start_node(self, name: str) -> None:
        """Returns when it has joined."""
        self._spawn_node(name)
        self.wait_for(lambda: self._has_joined(name), name)

    def _spawn_node(self, name: str) -> None:
        self._log(name).unlink(missing_ok=True)
        index = self.names.index(name)
        labels = f"--labels=trine-node={name},rack=rack{index // 2},ray.io/accelerator-type=V100"
        self._spawn_ray(
            name,
            f"--address={self.address}",
            "--node-ip-address=127.0.0.1",
            "--num-cpus=8",
            f"--num-gpus={self.gpus}",
            labels,
        )

    def kill_head(self) -> None:
        """The head and its memory, with its own raylet; those of the nodes notice some time later."""
        self.kill_machine("head")

    def pause_head(self, number: int) -> None:
        """SIGSTOP or SIGCONT to what answers for the cluster."""
        for pid in self._named("head", "gcs_server"):
            send(pid, number)

    def kill_raylet(self, name: str) -> None:
        """The raylet alone; what its workers started runs on for as long as it likes."""
        for pid in self._named(name, "raylet"):
            send(pid, signal.SIGKILL)

    def workers(self, name: str) -> list[int]:
        """Processes of actors on a node."""
        return self._named(name, "ray::Keeper")

    def drivers(self, daemon: int) -> list[int]:
        """Processes that talk to Ray on behalf of a daemon."""
        found = [pid for pid in descendants(daemon) if _DRIVER.encode() in _words(pid)]
        return sorted(found)

    def kill_machine(self, name: str, *, with_jobs: bool = True) -> None:
        """A node that is gone, without a word: all of it, or all of it that is Ray's."""
        process = self._processes.get(name)
        if process is None:
            return
        jobs = [] if with_jobs else [child for worker in self.workers(name) for child in descendants(worker)]
        for pid in {*descendants(process.pid), process.pid} - {*jobs}:
            send(pid, signal.SIGKILL)
        process.wait(10)
        del self._processes[name]

    def is_whole(self, name: str) -> bool:
        """The node runs, and so does its raylet."""
        return self.is_up(name) and bool(self._named(name, "raylet"))

    def is_up(self, name: str) -> bool:
        return name in self._processes and self._processes[name].poll() is None

    # -- what it says ------------------------------------------------------------------------------------------------

    @property
    def environ(self) -> dict[str, str]:
        """For programs that shall find this cluster and no other."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("RAY")}
        token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(self.token)}
        return {
            **kept,
            **token,
            "RAY_ADDRESS": self.address,
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_PYTHON": str(self.python),
            **_EVEN,
            **self._variables,
        }

    def run(self, *command: str) -> str:
        """What a command inside the namespace writes."""
        done = subprocess.run(
            [*self._inside, *command], env=self.environ, capture_output=True, text=True, timeout=120, check=False
        )
        return done.stdout.strip()

    def wait_for(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while not condition():
            assert time.monotonic() < deadline, f"waited in vain for {what}; {self._last_words()}"
            time.sleep(0.05)

    # -- inside ------------------------------------------------------------------------------------------------------

    @property
    def _inside(self) -> list[str]:
        return ["nsenter", f"--net=/proc/{self._processes['namespace'].pid}/ns/net"]

    def _write_python(self) -> None:
        """The Python that talks to Ray: this one, inside the namespace."""
        self.python.write_text(f'#!/bin/sh\nexec {shlex.join([*self._inside, sys.executable])} "$@"\n')
        self.python.chmod(0o755)

    def _spawn_ray(self, name: str, *options: str) -> None:
        ray = str(Path(sys.executable).with_name("ray"))
        self._spawn(name, [*self._inside, ray, "start", *_SMALL, *options])

    def _spawn(self, name: str, command: Sequence[str]) -> None:
        with self._log(name).open("ab") as out:
            self._processes[name] = subprocess.Popen(
                # A test that is killed leaves none of them behind; Ray's own reaper ends what they started.
                ["setpriv", "--pdeathsig", "KILL", *command],
                env=self.environ,
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )

    def _named(self, name: str, command: str) -> list[int]:
        """Processes of a node whose command begins so."""
        found = []
        for pid in descendants(self._processes[name].pid) if name in self._processes else ():
            first = _words(pid).split(b"\0")[0].decode(errors="replace")
            if Path(first).name.startswith(command) or first.startswith(command):
                found.append(pid)
        return found

    def _has_sockets(self, least: int) -> bool:
        return len(list(self.base.glob(f"s{self._heads}/session_latest/sockets/raylet*"))) >= least

    def _has_joined(self, name: str) -> bool:
        assert self.is_up(name), f"{name} has ended; {self._last_words()}"
        return "Ray runtime started" in self._log(name).read_text(errors="replace")

    def _log(self, name: str) -> Path:
        return self.base / f"{name}.out"

    def _last_words(self) -> str:
        said = []
        for name, process in self._processes.items():
            lines = self._log(name).read_text(errors="replace").splitlines() if self._log(name).exists() else []
            said.append(f"{name} ({process.poll()}): {' / '.join(lines[-3:])}")
        return "; ".join(said)


def _words(pid: int) -> bytes:
    """The command line of a process, empty if it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


@contextmanager
def ray_cluster(nodes: int = 4, gpus: int = 2, *, variables: Sequence[str] = ()) -> Iterator[RayCluster]:
    """A cluster for as long as the block lasts; skips the test where there can be none."""
    if why := missing():
        pytest.skip(why)
    cluster = RayCluster(nodes, gpus, variables=variables)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


if __name__ == "__main__":  # NODESxGPUS [-- COMMAND...]
    shown = ("RAY_ADDRESS", "RAY_AUTH_MODE", "RAY_AUTH_TOKEN_PATH", "RAY_PYTHON")
    sys.exit(keep_up(missing(), lambda nodes, gpus, _: RayCluster(nodes, gpus), shown))
