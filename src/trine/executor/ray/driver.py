"""The process that talks to Ray, which ends it when the head of the cluster is away for too long. One JSON object per
line on standard input is a request, one on standard output its answer; the first line says where the cluster is.

Needs Ray and the standard library, nothing of trine: it runs in whatever Python has the Ray of the cluster. It holds no
state but what is under way: when it ends, its parent starts another and repeats its requests."""

# Runs as a script by its path; the class of the actors must be of ``__main__`` to travel to nodes without trine.
# ruff: noqa: PTH112

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from typing import Any

NAMESPACE = "trine"
_GONE = "REMOVED"
_REACH_S = 10.0
_AWAY = ("gcs", "unavailable", "timed out", "deadline exceeded", "connection refused", "failed to connect")
"""Words of Ray's errors that say nothing about what was asked: the head cannot be reached now."""


class Keeper:
    """Of one attempt and one node: keeps the part there going, which stops when this process is gone."""

    def start(self, command: list[str], directory: str, log: str) -> None:
        """Start the part, unless it was started before. ``directory`` is what it must be able to see."""
        if not os.path.isdir(directory):
            raise FileNotFoundError(f"{directory} is not visible on node {os.uname().nodename}")
        with open(log, "ab") as out:  # noqa: PTH123
            # It leaves the part to itself: Ray kills the children of an actor that ends, which would leave no grace.
            kept = [*command, "--kept-by", str(os.getpid())]
            own: dict[str, Any] = {"cwd": "/", "stdin": subprocess.DEVNULL, "start_new_session": True}
            done = subprocess.run(kept, stdout=out, stderr=out, check=False, **own)
        if done.returncode:
            raise RuntimeError(f"its part ended with exit code {done.returncode}: see {log}")


def run_command(command: list[str], directory: str, log: str) -> int:
    """A task of a sweep: its exit code."""
    with open(log, "ab") as out:  # noqa: PTH123
        return subprocess.run(
            command, cwd=directory, stdin=subprocess.DEVNULL, stdout=out, stderr=out, check=False
        ).returncode


class Driver:
    """Answers requests by the methods that they name; each in a thread of its own, since some take long."""

    def __init__(self, answers: int) -> None:
        self._answers, self._writing = answers, threading.Lock()
        self._tasks: dict[str, Any] = {}

    def answer(self, number: int, **what: Any) -> None:
        data = json.dumps({"id": number, **what}).encode() + b"\n"
        with self._writing:
            while data:
                data = data[os.write(self._answers, data) :]

    def handle(self, request: dict[str, Any]) -> None:
        number, name = request.pop("id"), request.pop("do")
        try:
            self.answer(number, result=getattr(self, f"do_{name}")(**request))
        except Exception as error:  # whatever it is, it belongs to this request alone
            self.answer(number, **described(error))

    # -- requests ----------------------------------------------------------------------------------------------------

    def do_ask(self, prefix: str) -> dict[str, Any]:
        """All nodes, and the groups and actors whose names begin with ``prefix``."""
        import ray
        from ray._private.state import available_resources_per_node
        from ray.util.placement_group import placement_group_table

        groups = [group for group in placement_group_table().values() if group["state"] != _GONE]
        ours = [group for group in groups if group["name"].startswith(prefix)]
        free = available_resources_per_node()
        nodes = [_node(node, free.get(node["NodeID"], {}), ours) for node in ray.nodes()]
        actors = [name for name in ray.util.list_named_actors() if name.startswith(prefix)]
        return {"nodes": nodes, "groups": {group["name"]: group["state"] for group in ours}, "actors": actors}

    def do_start(self, group: str, parts: list[dict[str, Any]], directory: str) -> None:
        """Hold the GPUs of all parts, then start them. Done again, it finds what is there already."""
        import ray
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        held = _held(group, parts)
        keeper = ray.remote(max_restarts=0)(Keeper)
        starts = []
        for index, part in enumerate(parts):
            actor = keeper.options(
                name=part["actor"],
                lifetime="detached",
                get_if_exists=True,
                num_cpus=part["cpus"],
                num_gpus=part["gpus"],
                scheduling_strategy=PlacementGroupSchedulingStrategy(held, index),
            ).remote()
            starts.append(actor.start.remote(part["command"], directory, part["log"]))
        ray.get(starts)

    def do_kill(self, actors: list[str]) -> None:
        """End actors. What they started gets no signal and ends itself when it sees that they are gone."""
        import ray

        for name in actors:
            try:
                ray.kill(ray.get_actor(name), no_restart=True)
            except ValueError:
                continue  # gone already

    def do_release(self, group: str, actors: list[str]) -> None:
        """Give the GPUs of an attempt that has ended back to Ray, whatever is left of it there."""
        from ray.util.placement_group import get_placement_group, remove_placement_group

        self.do_kill(actors)
        try:
            remove_placement_group(get_placement_group(group))
        except ValueError:
            return  # gone already

    def do_run(self, key: str, command: list[str], directory: str, log: str, cpus: float) -> None:
        """Run a command on any node, as a task that ends with this process."""
        import ray

        task = ray.remote(max_retries=0)(run_command).options(num_cpus=cpus)
        self._tasks[key] = task.remote(command, directory, log)

    def do_running(self) -> list[str]:
        """Keys of the tasks that wait or run."""
        import ray

        keys = {task: key for key, task in self._tasks.items()}
        _, left = ray.wait(list(keys), num_returns=len(keys), timeout=0) if keys else ((), ())
        self._tasks = {keys[task]: task for task in left}
        return list(self._tasks)


def _node(node: dict[str, Any], free: dict[str, float], ours: list[dict[str, Any]]) -> dict[str, Any]:
    """What is said of a node: also how many of its GPUs jobs of others hold."""
    total = int(node["Resources"].get("GPU", 0))
    held = sum(
        int(group["bundles"][index].get("GPU", 0))
        for group in ours
        for index, place in group["bundles_to_node_id"].items()
        if place == node["NodeID"]
    )
    return {
        "id": node["NodeID"],
        "alive": node["Alive"],
        "name": node["NodeName"],
        "address": node["NodeManagerAddress"],
        "labels": node["Labels"],
        "gpus": total,
        "cpus": int(node["Resources"].get("CPU", 0)),
        "memory_bytes": int(node["Resources"].get("memory", 0)),
        "model": _model(node),
        "others": max(total - held - int(free.get("GPU", 0)), 0) if node["Alive"] else 0,
        "death": node["DeathReasonMessage"],
        "expected": node["DeathReason"] == 1,
    }


def _model(node: dict[str, Any]) -> str:
    named = [name.partition(":")[2] for name in node["Resources"] if name.startswith("accelerator_type:")]
    return str(node["Labels"].get("ray.io/accelerator-type") or (named[0] if named else ""))


def _held(name: str, parts: list[dict[str, Any]]) -> Any:
    """The placement group of this name: Ray makes it once, however often it is asked for, on exactly these nodes."""
    from ray.exceptions import RaySystemError
    from ray.util.placement_group import get_placement_group, placement_group

    bundles = [{"GPU": part["gpus"], **({"CPU": part["cpus"]} if part["cpus"] else {})} for part in parts]
    where = [{"ray.io/node-id": part["node"]} for part in parts]
    try:
        return placement_group(bundles, "PACK", name, "detached", bundle_label_selector=where)
    except RaySystemError as error:
        if "already exists" not in str(error):
            raise
        return get_placement_group(name)


def described(error: BaseException) -> dict[str, str]:
    """An error as an answer: ``missing`` (no Ray here), ``version``, ``away``, or ``refused``; and what was said."""
    cause = getattr(error, "cause", None) or error
    lines = [line.strip() for line in str(cause).splitlines() if line.strip()] or [type(cause).__name__]
    words = str(error).lower()
    if isinstance(error, ImportError):
        kind = "missing"
    elif "version mismatch" in words:
        kind, lines = "version", [" ".join(lines)]
    elif isinstance(error, ConnectionError) or any(word in words for word in _AWAY):
        kind = "away"
    else:
        kind = "refused"
    return {"error": kind, "said": lines[-1 if kind == "refused" and len(lines) > 1 else 0][:300]}


def check_listening(address: str) -> None:
    """``ConnectionError`` where no process listens at HOST:PORT: Ray itself would try for two minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdigit():
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), _REACH_S).close()
    except OSError as error:
        raise ConnectionError(f"no answer from {address}: {error.strerror or error}") from None


def main() -> int:
    """Serve until standard input ends."""
    answers = os.dup(1)
    os.dup2(2, 1)  # whatever Ray prints is no answer
    driver = Driver(answers)
    where = json.loads(sys.stdin.readline())
    try:
        import ray

        check_listening(where["address"])
        ray.init(address=where["address"] or "auto", namespace=NAMESPACE, logging_level="ERROR", log_to_driver=False)
        driver.answer(0, result={"ray": ray.__version__})
    except BaseException as error:
        driver.answer(0, **described(error))
        return 1
    for line in sys.stdin:
        threading.Thread(target=driver.handle, args=(json.loads(line),), daemon=True).start()
    os._exit(0)  # without a shutdown of Ray, which may take long; what is detached stays


if __name__ == "__main__":
    sys.exit(main())
