"""``trine top``: what a frame shows, and that the terminal is afterwards as it was before."""

from __future__ import annotations

import contextlib
import os
import pty
import select
import signal
import subprocess
import sys
import termios
import time
from pathlib import Path
from typing import Any

import pytest

from tests.cli.live.command import trine
from tests.client.fake_daemon import FakeDaemon, job, node
from trine.cli.live.top import Look, frame

NOW_S = 1.7e9 + 3600
PATIENCE_S = 30.0
DAEMON: dict[str, Any] = {
    **{"version": "1", "policy": "fifo", "placement": "packed", "round_s": 60.0, "started_s": 1.7e9, "gpus": 8},
    **{"free_gpus": 6, "jobs": {"running": 1, "waiting": 2, "done": 7}, "problems": []},
}


def look(**changes: Any) -> Look:
    nodes = [node("n0", ["1", None]), node("n1", [None, None], flags=("drift",))]
    nodes += [node("n2", [None, None]) | {"state": "down"}, node("n3", ["1", None])]
    jobs = [job("1", "running"), job("2", "waiting"), job("3", "waiting") | {"after": ["2"]}]
    return Look(DAEMON | changes, nodes, jobs)  # type: ignore[arg-type]


def test_a_frame_shows_daemon_gpus_nodes_and_jobs() -> None:
    lines = frame(look(problems=["The disk is full."]), NOW_S, 120, 40)
    assert lines[0].startswith("trine 1   fifo, packed   up 1h")
    assert lines[1] == "GPUs   8: 2 held (33% of those in service), 4 free, 2 out of service"
    assert lines[2] == "jobs   1 running, 2 waiting, 1 of them waits for other jobs"
    assert lines[3] == "!      The disk is full."
    assert "n0 #.  n1 !!  n2 xx  n3 #." in lines
    assert [line.split()[1] for line in lines if line.strip().startswith(("1 ", "- "))][:1]
    assert sum("train" in line for line in lines) == 3


def test_elements_that_wait_for_their_turn_wait_for_other_jobs() -> None:
    turn = {"code": "waits-for-other-jobs", "sentence": "job 4 waits for its turn", "numbers": {}, "change": ""}
    waiting = [job(str(number), "waiting") | {"reason": turn} for number in range(1000)]
    full = look()
    lines = frame(Look(full.daemon, full.nodes, [*full.jobs, waiting[0]]), NOW_S, 120, 40)  # type: ignore[list-item]
    assert lines[2] == "jobs   1 running, 3 waiting, 2 of them wait for other jobs"
    lines = frame(Look(full.daemon, full.nodes, waiting[:500]), NOW_S, 120, 40)  # type: ignore[arg-type]
    assert lines[2] == "jobs   1 running, 500 waiting", "there may be more that are not listed"


def test_who_sees_no_job_is_told_whether_there_are_any() -> None:
    others = Look(look().daemon, look().nodes, [])
    assert "None of your jobs runs or waits." in frame(others, NOW_S, 120, 40)
    empty = look(jobs={"done": 7})
    assert "No job runs or waits." in frame(Look(empty.daemon, empty.nodes, []), NOW_S, 120, 40)


@pytest.mark.parametrize(("width", "height"), [(20, 5), (40, 12), (80, 24), (200, 60)])
def test_a_frame_fits_any_terminal(width: int, height: int) -> None:
    full = look()
    many = Look(full.daemon, full.nodes * 200, [job(str(i), "waiting") for i in range(300)])  # type: ignore[misc]
    lines = frame(many, NOW_S, width, height)
    assert len(lines) <= height
    assert all(len(line) <= width for line in lines)
    if height >= 24:
        assert any("more jobs" in line for line in lines) and any("more lines of nodes" in line for line in lines)


def test_into_a_pipe_it_looks_once(daemon: FakeDaemon, state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRINE_STATE", str(state))
    daemon.add("running", name="evil\x1b[2Jname")
    done = trine("top")
    assert done.code == 0
    assert "GPUs" in done.out and "\x1b" not in done.out, "no name moves the cursor"


def _read_until(descriptor: int, wanted: bytes, process: subprocess.Popen[bytes]) -> bytes:
    deadline_s, got = time.monotonic() + PATIENCE_S, b""
    while wanted not in got:
        assert time.monotonic() < deadline_s, f"waited in vain for {wanted!r} in {got!r}"
        if select.select([descriptor], [], [], 0.1)[0]:
            with contextlib.suppress(OSError):
                got += os.read(descriptor, 65_536)
        elif process.poll() is not None:
            break
    return got


@pytest.mark.parametrize(("ending", "code"), [("ctrl-c", 130), ("q", 0), ("sigterm", 130)])
def test_the_terminal_is_as_it_was(daemon: FakeDaemon, state: Path, ending: str, code: int) -> None:
    daemon.add("running")
    ours, theirs = pty.openpty()
    try:
        before = termios.tcgetattr(theirs)
        command = [sys.executable, "-m", "trine", "top", "--state", str(state), "--every", "0.2"]
        # A session of its own with the terminal as its own: Ctrl-C then reaches it as from a keyboard.
        env = os.environ | {"TERM": "xterm"}
        process = subprocess.Popen(["setsid", "--ctty", *command], stdin=theirs, stdout=theirs, stderr=theirs, env=env)
        shown = _read_until(ours, b"GPUs", process)
        assert b"\x1b[?1049h" in shown, "on a screen of its own"
        if ending == "sigterm":
            process.send_signal(signal.SIGTERM)
        else:
            os.write(ours, b"\x03" if ending == "ctrl-c" else b"q")
        rest = _read_until(ours, b"\x1b[?1049l", process)
        assert process.wait(PATIENCE_S) == code
        assert b"\x1b[?1049l" in rest and b"\x1b[?25h" in rest, "the screen of before is back, and the cursor"
        assert termios.tcgetattr(theirs) == before
    finally:
        os.close(ours)
        os.close(theirs)
