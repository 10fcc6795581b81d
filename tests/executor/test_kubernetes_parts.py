"""The parts of the Kubernetes engine that need no cluster: names and states of pods, lists and watches, heartbeats,
tokens, what agents bring, and the step after which all ranks leave."""

from __future__ import annotations

import base64
import json
import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.executor.driving import until
from tests.executor.played_apiserver import PlayedApiServer
from trine.executor.attempt import rundir
from trine.executor.attempt.remote import EngineUnreachable
from trine.executor.attempt.spec import Site, make_spec
from trine.executor.attempt.state_dir import StateDir
from trine.executor.base import Handle, JobLease
from trine.executor.kubernetes.agent import Agent
from trine.executor.kubernetes.api import ApiRefused
from trine.executor.kubernetes.attempt import KubernetesAttempt
from trine.executor.kubernetes.informer import Informer
from trine.executor.kubernetes.inventory import Heartbeats, quantity
from trine.executor.kubernetes.pods import PodSettings, PodState, manifest, pod_name, pod_state
from trine.executor.kubernetes.relay import Relay, TokenKey
from trine.sdk.agreement import ByApi

HANDLE = Handle("7", 1)
KEY = TokenKey(b"key")


class Gone(Exception):  # noqa: N818 - ends the script of a test
    """Nothing more is scripted."""


class ScriptedApi:
    """Answers of an API server, one after the other."""

    def __init__(self, *watches: list[dict[str, Any]] | Exception) -> None:
        self.watches = list(watches)
        self.asked: list[str] = []

    def get(self, path: str, **query: Any) -> dict[str, Any]:
        self.asked.append("list")
        version = str(100 * len(self.asked))
        return {"items": [thing("a", "1")], "metadata": {"resourceVersion": version}}

    def watch(self, path: str, timeout_s: float, **query: Any) -> Iterator[dict[str, Any]]:
        self.asked.append(query["resourceVersion"])
        events = self.watches.pop(0) if self.watches else Gone()
        if isinstance(events, Exception):
            if isinstance(events, Gone):
                threading.Event().wait(60)
            raise events
        yield from events


def thing(name: str, version: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "n", "resourceVersion": version}}


def test_a_watch_goes_on_from_its_bookmark_and_lists_again_only_when_its_version_is_gone() -> None:
    bookmark = {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "150"}}}
    gone = {"type": "ERROR", "object": {"code": 410, "message": "too old resource version"}}
    added = {"type": "ADDED", "object": thing("b", "160")}
    removed = {"type": "DELETED", "object": thing("a", "170")}
    api = ScriptedApi([bookmark], [added, removed], [gone], EngineUnreachable("cut"))
    informer = Informer(api, "/things", lambda: None)  # type: ignore[arg-type]
    informer.start()
    until(lambda: len(api.asked) >= 7, "all of the script")
    informer.close()
    assert api.asked[:6] == ["list", "100", "150", "170", "list", "500"]
    assert informer.lists == 3


def test_a_watch_that_waits_for_the_server_ends_at_once_and_closes_its_connection() -> None:
    server = PlayedApiServer()
    try:
        api = server.api()
        informer = Informer(api, "/api/v1/pods", lambda: None)
        informer.start()
        until(lambda: bool(api._watches), "the watch to begin")
        (watch,) = api._watches
        connection: Any = watch.connection
        assert connection.sock is not None
        informer.close()
        api.end_watches()
        informer.join(30.0)
        api.close()
        assert not informer._thread.is_alive(), "the server said nothing meanwhile"
        assert connection.sock is None, "closed, and not left to the collector of garbage"
        assert list(api.watch("/api/v1/pods", 60)) == [], "nor does one begin that comes too late"
        api.close()
    finally:
        server.close()


def test_what_was_watched_is_not_told_while_it_is_out_of_date() -> None:
    class Away(ScriptedApi):
        def get(self, path: str, **query: Any) -> dict[str, Any]:
            raise ApiRefused(403, 'User "x" cannot list resource "pods"')

    informer = Informer(Away(), "/things", lambda: None)  # type: ignore[arg-type]
    informer.start()
    with pytest.raises(EngineUnreachable, match='cannot list resource "pods"'):
        informer.objects(wait_s=10.0)
    informer.close()


def test_a_kubelet_with_a_wrong_clock_is_heard_as_long_as_it_renews() -> None:
    now = [1000.0]
    beats = Heartbeats(40.0, lambda: now[0])

    def lease(renewed: str) -> list[dict[str, Any]]:
        return [{"metadata": {"name": "node0"}, "spec": {"renewTime": renewed}}]

    assert beats.note(lease("1999-01-01T00:00:00Z")) == {}
    for hour in range(5):
        now[0] += 39.0
        assert beats.note(lease(f"2099-01-01T0{hour}:00:00Z")) == {}
    now[0] += 41.0
    assert beats.note(lease("2099-01-01T04:00:00Z")) == {"node0": 41.0}
    beats.restart()
    assert beats.note(lease("2099-01-01T04:00:00Z")) == {}, "nothing follows from what could not be seen"


@pytest.mark.parametrize(
    ("text", "number"), [("64", 64.0), ("63500m", 63.5), ("256Gi", 256 << 30), ("1k", 1000.0), ("", 0.0), (None, 0.0)]
)
def test_quantities(text: object, number: float) -> None:
    assert quantity(text) == number


@pytest.mark.parametrize("job_id", ["7", "train", "Upper_Case.7", "x" * 128, "a.b"])
def test_names_of_pods_are_valid_and_the_same_for_the_same_attempt(job_id: str) -> None:
    name = pod_name("abcd1234", Handle(job_id, 3), 1)
    assert name == pod_name("abcd1234", Handle(job_id, 3), 1) != pod_name("abcd1234", Handle(job_id, 4), 1)
    assert len(name) < 200 and name == name.lower() and "_" not in name


def test_a_pod_asks_for_gpus_by_count_and_carries_no_variable_of_the_job(tmp_path: Path) -> None:
    lease = JobLease("7", 1, (("node0", (1, 3)),), ("train",), {"SECRET": "hush"}, grace_s=30.0)
    spec = make_spec(lease, {}, 0, "https://daemon", "", Site(part_per_node=True, look_s=1.0))
    settings = PodSettings("ns", image="image", claim="state", cpus_per_gpu=1.5, memory_per_gpu_mib=100)
    pod = manifest(settings, "id", HANDLE, {**spec, "checkpoints": "/state/jobs/7/checkpoints"}, 0, "token")
    container = pod["spec"]["containers"][0]
    assert container["resources"]["limits"] == {"nvidia.com/gpu": "2", "cpu": "3000m", "memory": "200Mi"}
    assert container["volumeMounts"][0]["subPath"] == "jobs/7/checkpoints", "of one job only"
    assert pod["spec"]["terminationGracePeriodSeconds"] > 30 and pod["spec"]["restartPolicy"] == "Never"
    assert "hush" not in str(pod)


@pytest.mark.parametrize(
    ("status", "deleting", "over"),
    [
        ({"phase": "Running"}, None, False),
        ({"phase": "Failed"}, None, False),
        ({"phase": "Failed", "reason": "UnexpectedAdmissionError", "message": "no GPU"}, None, True),
        ({"phase": "Failed", "containerStatuses": [{"state": {"terminated": {"exitCode": 1}}}]}, None, True),
        ({"phase": "Pending"}, 30, False),
    ],
    ids=["runs", "said by a controller", "turned away", "seen by the kubelet", "leaving"],
)
def test_only_what_a_kubelet_says_proves_an_end(status: dict[str, Any], deleting: int | None, over: bool) -> None:
    metadata = {"name": "p", "uid": "u", "labels": {"trine.dev/part": "0"}}
    if deleting is not None:
        metadata |= {"deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": deleting}  # type: ignore[dict-item]
    assert pod_state({"metadata": metadata, "spec": {"nodeName": "node0"}, "status": status}).over == over
    unbound = pod_state({"metadata": metadata, "spec": {}, "status": {"phase": "Pending"}})
    assert unbound.over == (deleting is not None), "a pod that no kubelet knows of never runs"


def test_a_message_that_is_none_of_an_agent_is_no_end() -> None:
    for message in ("", "Killed", "[1]", '{"codes": 7}', '{"other": {}}'):
        status = {"phase": "Failed", "containerStatuses": [{"state": {"terminated": {"message": message}}}]}
        assert pod_state({"metadata": {"name": "p", "uid": "u"}, "spec": {}, "status": status}).end is None


# -- what agents and ranks bring ------------------------------------------------------------------------------------


def relay(tmp_path: Path, given: list[Handle] | None = None, command: tuple[str, ...] = ("train",)) -> Relay:
    """One attempt of two parts with a rank each, on record."""
    state = StateDir(tmp_path)
    lease = JobLease("7", 1, (("node0", (0,)), ("node1", (0,))), command, lease_s=60.0)
    state.prepare(lease, make_spec(lease, {}, 0, "", "", Site(part_per_node=True, look_s=1.0)))
    return Relay(state, KEY, (given if given is not None else []).append)


def news(part: int, instance: str = "one", **more: Any) -> dict[str, Any]:
    return {"part": part, "instance": instance, "address": f"10.0.0.{part}", **more}


def test_a_token_is_good_for_its_attempt_alone_and_for_as_long_as_that_is_on_record(tmp_path: Path) -> None:
    used = relay(tmp_path)
    good = KEY.token(HANDLE)
    assert used.exchange(good, news(0)) is not None
    other, forged = KEY.token(Handle("7", 2)), TokenKey(b"another key").token(HANDLE)
    for token in (other, forged, "", ".", "x.y", good[:-1], good.replace(".", ""), "\u00e9.1"):
        assert used.exchange(token, news(0)) is None and used.agree(token, {"rank": 0, "done": 1, "ahead": 1}) is None
    StateDir(tmp_path).marker(HANDLE).unlink()
    assert used.exchange(good, news(0)) is None


@pytest.mark.parametrize("request_", [{}, {"part": "0"}, {"part": 2}, {"part": -1}, {"part": None}])
def test_a_request_that_makes_no_sense_is_refused(tmp_path: Path, request_: dict[str, Any]) -> None:
    assert relay(tmp_path).exchange(KEY.token(HANDLE), request_) is None


def test_a_second_agent_of_a_part_finds_it_taken_and_all_wait_for_the_first_part(tmp_path: Path) -> None:
    used, token = relay(tmp_path), KEY.token(HANDLE)
    second = used.exchange(token, news(1))
    assert second is not None and "spec" not in second, "the address of the first part is not known yet"
    assert used.exchange(token, news(1, "two")) == {"over": True}
    first = used.exchange(token, news(0))
    assert first is not None and first["spec"]["addresses"] == {"node0": "10.0.0.0"}
    again = used.exchange(token, news(1))
    assert again is not None and again["spec"]["addresses"] == {"node0": "10.0.0.0"}


def test_a_lease_counts_from_when_it_is_given(tmp_path: Path) -> None:
    given: list[Handle] = []
    used, token = relay(tmp_path, given), KEY.token(HANDLE)
    used.exchange(token, news(0))
    used.exchange(token, news(0))
    assert len(given) == 2, "a part that has not begun counts from when it begins"
    for _ in range(3):
        used.exchange(token, news(0, up={"t": 1.0}))
    assert len(given) == 2, "the same lease is no new one"
    path = str(StateDir(tmp_path).run_dir(HANDLE) / rundir.LEASE)
    rundir.write_json(path, {**(rundir.read_json(path) or {}), "renewal": 1})
    used.exchange(token, news(0, up={"t": 1.0}))
    assert len(given) == 3


def test_a_log_that_comes_in_pieces_twice_and_with_gaps_is_whole(tmp_path: Path) -> None:
    used, token, text = relay(tmp_path), KEY.token(HANDLE), bytes(range(256)) * 20
    draw, sent = random.Random(1), 0
    while sent < len(text):
        start = max(0, sent + draw.randrange(-500, 200))
        chunk = [start, base64.b64encode(text[start : start + draw.randrange(1, 700)]).decode()]
        answer = used.exchange(token, news(1, logs={"1": chunk, "0": chunk}))
        assert answer is not None
        sent = int(answer["logs"].get("1", 0))
    assert (tmp_path / "jobs/7/log.1").read_bytes() == text
    assert not (tmp_path / "jobs/7/log").exists(), "a part writes the logs of its own ranks only"


def test_a_failure_after_an_order_to_stop_is_none(tmp_path: Path) -> None:
    used, token, run_dir = relay(tmp_path), KEY.token(HANDLE), StateDir(tmp_path).run_dir(HANDLE)
    rundir.write_json(str(run_dir / rundir.STOP), {"grace_s": 5.0})
    answer = used.exchange(token, news(1, halt={"rank": 1, "rc": 1}))
    assert answer is not None and answer["stop"] == {"grace_s": 5.0} and "halt" not in answer


def ended_pod(part: int, failure: tuple[int, int, float], ended: bool = True) -> PodState:
    """A pod as the API server has it: with the message of its agent once its kubelet has told of the end."""
    end = {"codes": {str(failure[0]): failure[1]}, "asked": "", "failure": [*failure], "instance": f"i{part}"}
    state = {"terminated": {"exitCode": failure[1], "message": json.dumps(end)}} if ended else {"running": {}}
    status = {"phase": "Failed" if ended else "Running", "containerStatuses": [{"state": state}]}
    metadata = {"name": f"p{part}", "uid": f"u{part}", "labels": {"trine.dev/part": str(part)}}
    return pod_state({"metadata": metadata, "spec": {"nodeName": f"node{part}"}, "status": status})


@pytest.mark.parametrize("heard", [0, 1], ids=["the peer is heard of first", "the culprit is heard of first"])
def test_the_rank_that_failed_first_is_to_blame_whichever_agent_is_heard_of_first(tmp_path: Path, heard: int) -> None:
    failures = [(0, 1, 100.004), (1, 7, 100.0)]  # rank 0 misses rank 1 a moment after it
    used, token, run_dir = relay(tmp_path), KEY.token(HANDLE), StateDir(tmp_path).run_dir(HANDLE)
    for part in (heard, 1 - heard):
        halt = dict(zip(("rank", "rc", "t"), failures[part], strict=True))
        used.exchange(token, news(part, f"i{part}", up={"t": 1.0}, halt=halt))
    attempt = KubernetesAttempt(HANDLE, run_dir, spec=rundir.read_json(str(run_dir / rundir.SPEC)) or {})
    for both in (False, True):
        attempt.pods = {part: ended_pod(part, failures[part], both or part == heard) for part in range(2)}
        attempt.record_parts()
    end = attempt.concluded(lambda _: True)
    assert end == {"kind": "failed", "rc": 7, "reason": "rank 1 of 2 ended with exit code 7"}


class DaemonElsewhere:
    """A daemon whose clock is an hour ahead of that of the pods."""

    def __init__(self, relay: Relay, token: str) -> None:
        self._relay, self._token = relay, token

    def exchange(self, news: dict[str, Any]) -> dict[str, Any] | None:
        answer = self._relay.exchange(self._token, news)
        return answer and {**answer, "now_s": answer["now_s"] + 3600.0}


def test_an_agent_tells_of_a_failure_by_the_clock_of_the_daemon(tmp_path: Path) -> None:
    used = relay(tmp_path / "state", command=("/bin/sh", "-c", "exit 7"))
    agent = Agent(DaemonElsewhere(used, KEY.token(HANDLE)), 0, "127.0.0.1")  # type: ignore[arg-type]
    answer = agent.check_in()
    assert answer is not None
    began_s = time.time()
    end = agent.follow(agent.start(answer))
    rank, code, at_s = end["failure"]
    assert (rank, code) == (0, 7) and began_s <= at_s - 3600.0 + 1.0 and at_s - 3600.0 <= time.time() + 1.0
    halt = rundir.read_json(str(StateDir(tmp_path / "state").run_dir(HANDLE) / rundir.HALT))
    assert halt is not None and halt["t"] == pytest.approx(at_s, abs=1.0)


@pytest.mark.parametrize("seed", range(5))
def test_all_ranks_leave_after_the_same_step_however_unevenly_they_run(tmp_path: Path, seed: int) -> None:
    token, draw = KEY.token(HANDLE), random.Random(seed)
    used = relay(tmp_path)

    def ask(rank: int, done: int, ahead: int, asked: bool) -> int | None:
        answer = used.agree(token, {"rank": rank, "done": done, "ahead": ahead, "asked": asked})
        assert answer is not None
        return answer["stop_at"]  # type: ignore[no-any-return]

    ranks = [ByApi(ask, rank) for rank in range(4)]
    steps, left = [0] * 4, [-1] * 4
    told = draw.randrange(50, 150)
    for turn in range(5000):
        rank = draw.randrange(4)
        if left[rank] < 0 and steps[rank] <= min(steps) + 3:  # collectives keep them close together
            steps[rank] += 1
            if ranks[rank].leave(steps[rank], asked=rank == 2 and turn > told, steps_per_s=10.0):
                left[rank] = steps[rank]
    assert len(set(left)) == 1 and left[0] > 0


def test_a_decision_outlives_the_daemon(tmp_path: Path) -> None:
    token = KEY.token(HANDLE)
    used = relay(tmp_path)
    used.agree(token, {"rank": 0, "done": 10, "ahead": 20, "asked": False})
    again = Relay(StateDir(tmp_path), KEY, lambda _: None)
    assert again.agree(token, {"rank": 1, "done": 12, "ahead": 1, "asked": True}) == {"stop_at": 30}


def test_ranks_that_do_not_reach_the_daemon_leave_when_they_are_asked() -> None:
    def away(*_: object) -> int | None:
        raise ConnectionRefusedError

    rank = ByApi(away, 0)
    assert not rank.leave(1, False, 1.0)
    assert rank.leave(2, True, 1.0)
