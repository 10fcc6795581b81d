"""The base of executors with an engine that is nothing but memory: what attempts do is told by calls, none of their
files is read but the daemon's own record, and the engine can be away or say no."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.executor.driving import until
from trine.executor.attempt.remote import EngineRefused, EngineUnreachable, RemoteAttempt, RemoteExecutor
from trine.executor.attempt.spec import make_spec
from trine.executor.base import (
    AttemptExited,
    AttemptProgress,
    AttemptStarted,
    EngineDown,
    EngineUp,
    Event,
    Handle,
    InventoryChanged,
    JobLease,
    LaunchFailed,
    NodeInfo,
    Unreachable,
)
from trine.executor.local.inventory import virtual_nodes


class Cloud:
    """An engine far away: outlives executors."""

    def __init__(self) -> None:
        self.submitted: list[Handle] = []
        self.said: dict[Handle, list[Event]] = {}
        """What is to be told of an attempt, in order."""
        self.renewed: list[Handle] = []
        self.stopped: list[tuple[Handle, float | None]] = []
        self.fails: Exception | None = None
        self.failed: list[Handle] = []
        self.nodes: list[NodeInfo] = virtual_nodes("2x2")
        self.unreadable: set[Handle] = set()


@dataclass
class CloudAttempt(RemoteAttempt):
    """Start, progress and end come from the engine, renewals go there."""

    cloud: Cloud | None = None

    def _take(self, kind: type) -> Any:
        assert self.cloud is not None
        waiting = self.cloud.said.get(self.handle, [])
        return waiting.pop(0) if waiting and isinstance(waiting[0], kind) else None

    def read(self, name: str) -> dict[str, Any] | None:
        assert self.cloud is not None
        if self.handle in self.cloud.unreadable:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), name)
        return super().read(name)

    def start(self) -> AttemptStarted | None:
        found: AttemptStarted | None = self._take(AttemptStarted)
        return found

    def progress(self) -> AttemptProgress | None:
        found: AttemptProgress | None = self._take(AttemptProgress)
        return found

    def end(self) -> AttemptExited | LaunchFailed | None:
        found: AttemptExited | LaunchFailed | None = self._take(AttemptExited)
        return found

    def renew_lease(self, lease_s: float | None, now_s: float) -> None:
        assert self.cloud is not None
        self.cloud.renewed.append(self.handle)


class CloudExecutor(RemoteExecutor[CloudAttempt, list[NodeInfo]]):
    """What an engine has to fill in, and no more."""

    engine = "Cloud"

    def __init__(self, state: Path, cloud: Cloud) -> None:
        super().__init__(state, cloud.nodes, look_s=0.01, ask_s=0.01)
        self._cloud = cloud
        self._open()

    def _new_attempt(self, handle: Handle) -> CloudAttempt:
        return CloudAttempt(handle, self._state.run_dir(handle), cloud=self._cloud)

    def _make_spec(self, lease: JobLease) -> dict[str, Any]:
        return make_spec(lease, {}, 0, "", "")

    def _launched(self, attempt: CloudAttempt) -> None:
        self._order(lambda: self._tell(attempt.handle))

    def _tell(self, handle: Handle) -> None:
        if self._cloud.fails is not None:
            self._cloud.failed.append(handle)
            raise self._cloud.fails
        self._cloud.submitted.append(handle)

    def _follow(self, attempt: CloudAttempt) -> None:
        self._report_start(attempt)
        self._report_progress(attempt)
        if (end := attempt.end()) is not None:
            self._end(attempt, end)

    def _preempt(self, attempt: CloudAttempt, grace_s: float) -> None:
        self._cloud.stopped.append((attempt.handle, grace_s))

    def _kill(self, attempt: CloudAttempt) -> None:
        self._cloud.stopped.append((attempt.handle, None))

    def _question(self, running: Sequence[CloudAttempt]) -> list[NodeInfo]:
        if self._cloud.fails is not None:
            raise self._cloud.fails
        return list(self._cloud.nodes)

    def _answered(self, answer: list[NodeInfo], asked_s: float) -> None:
        self._note_nodes(answer)


@pytest.fixture
def cloud() -> Cloud:
    return Cloud()


@pytest.fixture
def executor(tmp_path: Path, cloud: Cloud) -> Iterator[CloudExecutor]:
    with CloudExecutor(tmp_path, cloud) as opened:
        yield opened


def lease(job: str, node: str = "node0", gpus: tuple[int, ...] = (0,), epoch: int = 1) -> JobLease:
    return JobLease(job, epoch, ((node, gpus),), ("true",), lease_s=60.0)


def take(executor: CloudExecutor, count: int) -> list[Event]:
    """The next events, however they are spread over calls."""
    found: list[Event] = []

    def enough() -> bool:
        found.extend(executor.wait_events(0.1))
        return len(found) >= count

    until(enough, f"{count} events")
    return found


def life(handle: Handle) -> list[Event]:
    return [AttemptStarted(handle, 1.0), AttemptProgress(handle, 2.0, 5, 1.0), AttemptExited(handle, 3.0, "done", 0)]


def test_a_life_is_reported_in_order_by_what_the_engine_says(executor: CloudExecutor, cloud: Cloud) -> None:
    handle = executor.launch(lease("j"))
    until(lambda: cloud.submitted == [handle], "the submission")
    executor.renew(handle, 60.0)
    executor.preempt(handle, 5.0)
    executor.kill(handle)
    assert (cloud.renewed, cloud.stopped) == ([handle], [(handle, 5.0), (handle, None)])
    assert executor.placement(handle) == (("node0", (0,)),)
    cloud.said[handle] = life(handle)
    assert take(executor, 3) == life(handle)
    assert executor.placement(handle) == () and executor.list_handles() == [handle]
    executor.forget(handle)
    assert executor.list_handles() == []


def test_a_new_executor_takes_up_what_the_last_one_left_and_submits_nothing_again(tmp_path: Path, cloud: Cloud) -> None:
    with CloudExecutor(tmp_path, cloud) as first:
        handle = first.launch(lease("j"))
        until(lambda: cloud.submitted == [handle], "the submission")
    with CloudExecutor(tmp_path, cloud) as second:
        assert second.list_handles() == [handle] and second.placement(handle) == (("node0", (0,)),)
        second.launch(lease("other"))
        [refused] = take(second, 1)
        assert isinstance(refused, LaunchFailed) and refused.passing and "still held by j" in refused.reason
        cloud.said[handle] = life(handle)
        assert take(second, 3) == life(handle)
    assert cloud.submitted == [handle]


@pytest.mark.parametrize("failure", [EngineUnreachable("no route to host"), EngineRefused("not for you")], ids=repr)
def test_silence_is_told_once_and_so_is_the_first_answer(
    executor: CloudExecutor, cloud: Cloud, failure: Exception
) -> None:
    cloud.fails = failure
    [down] = take(executor, 1)
    assert isinstance(down, EngineDown) and down.reason == str(failure)
    assert executor.inventory() == Unreachable(str(failure))
    assert executor.trouble() == f"Cloud cannot be asked: {failure}"
    assert executor.list_handles() == [], "complete, whether or not the engine answers"
    cloud.fails = None
    [up] = take(executor, 1)
    assert isinstance(up, EngineUp) and executor.trouble() == ""
    assert executor.inventory() == cloud.nodes


def test_nodes_that_come_and_go_are_told_as_a_whole(executor: CloudExecutor, cloud: Cloud) -> None:
    cloud.nodes = virtual_nodes("3x2")
    [changed] = take(executor, 1)
    assert isinstance(changed, InventoryChanged)
    assert [node.name for node in changed.nodes] == ["node0", "node1", "node2"]
    assert executor.inventory() == cloud.nodes


def test_an_attempt_that_cannot_be_read_hides_no_other_and_keeps_its_gpus(tmp_path: Path, cloud: Cloud) -> None:
    with CloudExecutor(tmp_path, cloud) as first:
        one, other = first.launch(lease("one")), first.launch(lease("other", "node1"))
        until(lambda: len(cloud.submitted) == 2, "both submissions")
    cloud.unreadable = {one}
    with CloudExecutor(tmp_path, cloud) as second:
        assert "attempt 1 of job one cannot be read: spec.json: Too many open files" in second.trouble()
        second.launch(lease("next", "node1", (1,)))
        [refused] = take(second, 1)
        assert isinstance(refused, LaunchFailed) and refused.passing, "which GPUs are free is not known"
        cloud.said[other] = life(other)
        assert take(second, 3) == life(other)
        cloud.unreadable = set()
        until(lambda: not second.trouble(), "the attempt to be read")
        cloud.said[one] = life(one)
        assert take(second, 3) == life(one)


def test_a_bug_in_an_order_is_logged_and_is_no_silence_of_the_engine(
    executor: CloudExecutor, caplog: pytest.LogCaptureFixture
) -> None:
    def broken() -> None:
        raise ValueError("a bug")

    executor._order(broken)
    until(lambda: "while telling Cloud" in caplog.text and "a bug" in caplog.text, "the line in the log")
    assert executor.trouble() == ""


class SubmittingExecutor(CloudExecutor):
    """Hands attempts in as executors do by default, and again as long as the engine has not got them."""

    def _launched(self, attempt: CloudAttempt) -> None:
        RemoteExecutor._launched(self, attempt)

    def _hand_in(self, attempt: CloudAttempt) -> None:
        self._tell(attempt.handle)

    def _handed_in(self, attempt: CloudAttempt, refused: str) -> None:
        assert not refused

    def _follow(self, attempt: CloudAttempt) -> None:
        if attempt.handle not in self._cloud.submitted:
            self._submit(attempt)


@pytest.mark.parametrize("failure", [OSError(errno.EMFILE, "too many files"), ZeroDivisionError("ours")], ids=repr)
def test_an_attempt_whose_submission_failed_for_a_reason_of_ours_is_submitted_again(
    tmp_path: Path, cloud: Cloud, failure: Exception
) -> None:
    cloud.fails = failure
    with SubmittingExecutor(tmp_path, cloud) as executor:
        handle = executor.launch(lease("j"))
        until(lambda: handle in cloud.failed, "the failed submission")
        cloud.fails = None
        until(lambda: cloud.submitted == [handle], "the submission")
