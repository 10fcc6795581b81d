"""The process that talks to Ray, played by scripts: it may be missing, slow or ended, and the caller goes on."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.executor.driving import until
from trine.core.errors import InputError
from trine.executor.base import Unreachable
from trine.executor.ray.connection import RayConnection, RayRefused, RayUnreachable
from trine.executor.ray.engine import RayEngine
from trine.executor.ray.inventory import Naming, Occupancy, parse_nodes

_PLAYED = """
import json, os, sys, time
where = json.loads(sys.stdin.readline())
print(json.dumps({"id": 0, "result": {}}), flush=True)
for line in sys.stdin:
    asked = json.loads(line)
    if asked["do"] == "end": print("head is gone", file=sys.stderr, flush=True); os._exit(1)
    if asked["do"] == "sleep": continue
    if asked["do"] == "refuse": print(json.dumps({"id": asked["id"], "error": "refused", "said": "no"}), flush=True)
    else: print(json.dumps({"id": asked["id"], "result": [os.getpid(), where["address"]]}), flush=True)
"""


def played(directory: Path, script: str = _PLAYED) -> str:
    """A Python that plays the driver."""
    (directory / "played.py").write_text(script)
    path = directory / "python"
    path.write_text(f"#!/bin/sh\nexec {sys.executable} -I -S {directory / 'played.py'}\n")
    path.chmod(0o755)
    return str(path)


@pytest.fixture
def connection(tmp_path: Path) -> RayConnection:
    return RayConnection("here:1", python=played(tmp_path), timeout_s=10.0)


def test_a_process_that_ended_is_started_again_and_those_who_wait_are_told(connection: RayConnection) -> None:
    pid, address = connection.call("ask")
    assert (pid, address) == (connection.pid, "here:1")
    waits = connection.post("sleep")
    with pytest.raises(RayUnreachable, match="Ray ended the process that talks to it: head is gone"):
        connection.call("end")
    assert isinstance(waits.exception(10), RayUnreachable)
    assert connection.call("ask")[0] == connection.pid != pid
    connection.close()
    until(lambda: not Path(f"/proc/{pid}").exists(), "the end of the process")
    assert connection.pid == 0


def test_a_process_that_does_not_answer_is_ended_and_replaced(tmp_path: Path) -> None:
    connection = RayConnection("here:1", python=played(tmp_path), timeout_s=0.5)
    first = connection.post("ask").result(10)[0]
    with pytest.raises(RayUnreachable, match=r"did not answer within 0\.5 s"):
        connection.call("sleep")
    until(lambda: connection.pid == 0, "the end of the process")
    assert connection.post("ask").result(10)[0] != first
    connection.close()


def test_a_refusal_is_an_answer_and_the_process_goes_on(connection: RayConnection) -> None:
    with pytest.raises(RayRefused, match="no"):
        connection.call("refuse")
    pid = connection.pid
    assert connection.call("ask")[0] == pid
    os.kill(pid, signal.SIGKILL)
    until(lambda: connection.pid == 0, "its end to be seen")
    assert connection.call("ask")[0] != pid, "a kill between two calls is not even noticed"
    connection.close()


def test_a_python_without_ray_is_bad_input(tmp_path: Path) -> None:
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n')
    bare.chmod(0o755)
    with pytest.raises(InputError, match=r"--engine ray: there is no Ray here: .*'ray'; expected engine.ray_python"):
        RayEngine(ray_python=str(bare)).find_nodes(None)
    with pytest.raises(InputError, match="there is no Ray here: /no/python cannot be run: No such file"):
        RayEngine(ray_python="/no/python").find_nodes(None)


@pytest.mark.parametrize(
    "settings", [{"address": "ray://head:10001"}, {"environ": {"RAY_ADDRESS": "ray://head:10001"}}]
)
def test_jobs_are_not_run_through_rays_client(settings: dict[str, Any]) -> None:
    sentence = r"--engine ray: ray://head:10001 is Ray's client, .*; expected HOST:PORT of the head, from a node"
    with pytest.raises(InputError, match=sentence):
        RayEngine(**settings).find_nodes(None)


def test_a_cluster_that_is_away_is_no_bad_input(tmp_path: Path) -> None:
    away = 'import json; print(json.dumps({"id": 0, "error": "away", "said": "no answer from head:6379"}))'
    found = RayEngine(ray_python=played(tmp_path, away)).find_nodes(None)
    assert found == Unreachable("no answer from head:6379")


def said(name: str, *, gpus: int = 2, alive: bool = True, others: int = 0, expected: bool = False) -> dict[str, object]:
    """A node as the driver tells of it."""
    labels = {"trine-node": name, "place": "r7"} if name else {}
    where = {"id": f"id-{name}", "alive": alive, "name": "10.0.0.1", "address": "10.0.0.1", "labels": labels}
    size = {"gpus": gpus, "cpus": 8, "memory_bytes": 1 << 30, "model": "A100", "others": others}
    return {**where, **size, "death": "" if alive else "health check failed", "expected": expected}


def test_nodes_are_named_by_their_label_and_those_that_died_are_down() -> None:
    naming = Naming("trine-node", "place")
    before = parse_nodes([said("b"), said("a"), said(""), said("head", gpus=0), said("left"), said("lost")], naming)
    assert [node.name for node in before] == ["10.0.0.1", "a", "b", "left", "lost"]
    info = before[1].info()
    assert (info.gpus[0].type, info.labels["rack"], info.cpus, info.up) == ("a100", "r7", 8, True)
    known = {node.name: node for node in before}
    now = [said("b", alive=False, gpus=0), said("a"), said("left", gpus=0, alive=False, expected=True)]
    nodes = {node.name: node.info() for node in parse_nodes(now, naming, known)}
    assert {name: node.up for name, node in nodes.items()} == {"10.0.0.1": False, "a": True, "b": False, "lost": False}
    assert nodes["b"].reason == "Ray says that it died: health check failed" and len(nodes["b"].gpus) == 2
    assert nodes["lost"].reason == "Ray does not know it any more"
    with pytest.raises(InputError, match="two nodes are called a; expected a label trine-node=NAME of its own"):
        parse_nodes([said("a"), said("a")], Naming())


def test_gpus_are_withheld_when_others_were_seen_twice_and_ours_never() -> None:
    occupancy, nodes = Occupancy(), parse_nodes([said("a", others=1), said("b")], Naming())
    ours = {("a", 0)}
    for expected in ([False, False], [False, True]):
        infos = occupancy.infos(nodes, ours)
        assert [bool(gpu.withheld) for gpu in infos[0].gpus] == expected
        assert not any(gpu.withheld for gpu in infos[1].gpus)
    assert [bool(gpu.withheld) for gpu in occupancy.infos(parse_nodes([said("a")], Naming()), ours)[0].gpus] == [
        False
    ] * 2
