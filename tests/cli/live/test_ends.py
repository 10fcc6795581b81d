"""How verbs end when things are not as they should be: no daemon, wrong token, Ctrl-C, a reader that leaves."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.live.command import trine
from tests.client.fake_daemon import FakeDaemon, announce
from trine.cli.lazy import VERBS, load

VERB_LINES = [
    *(["queue"], ["queue", "--watch"], ["show", "1"], ["explain", "1"], ["cancel", "1"], ["hold", "1"]),
    *(["release", "1"], ["logs", "-f", "1"], ["wait", "1"], ["nodes"], ["drain", "n0"], ["undrain", "n0"]),
    ["submit", "--", "true"],
]


def process(*arguments: str | Path, **options: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "trine", *map(str, arguments)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True} | options
    return subprocess.Popen(command, **pipes)  # type: ignore[call-overload, no-any-return]


@pytest.mark.parametrize("line", VERB_LINES, ids=lambda line: line[0])
def test_without_a_daemon_every_verb_says_how_to_start_one(line: list[str], state: Path) -> None:
    done = trine(line[0], "--state", state, *line[1:])
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith(f"trine: no daemon at {state}")
    assert "trine up" in done.err
    assert done.err.count("\n") == 1


def test_a_stale_announcement_is_said_to_be_stale(state: Path) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    announce(state, "http://127.0.0.1:9", ended.pid)
    done = trine("queue", "--state", state)
    assert done.code == 1
    assert "stale" in done.err


def test_a_wrong_token_is_refused_without_showing_it(
    daemon: FakeDaemon, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (state / "token").write_text("secret")
    done = trine("queue", "--state", state)
    assert (done.code, done.out) == (1, "")
    assert "token" in done.err
    assert "secret" not in done.err


@pytest.mark.parametrize("verb", ["show", "explain", "logs", "wait", "cancel", "hold", "release"])
def test_an_unknown_job_is_the_daemons_sentence(daemon: FakeDaemon, state: Path, verb: str) -> None:
    done = trine(verb, "17", "--state", state)
    assert done.code == 1
    assert done.err == "trine: there is no job 17\n"


def test_tokens_need_a_state_directory_of_a_daemon(state: Path) -> None:
    done = trine("token", "list", "--state", state)
    assert done.code == 2
    assert str(state) in done.err


def test_what_is_listed_is_what_the_commands_say_themselves() -> None:
    for name, (_, line) in VERBS.items():
        assert load(name).help.split("\n")[0] == line


def test_ctrl_c_ends_a_verb_that_waits_with_130_and_one_word(daemon: FakeDaemon, state: Path) -> None:
    job_id = daemon.add("running")
    daemon.write(job_id, b"hello\n")
    with process("logs", "-f", job_id, "--state", state) as following:
        try:
            assert following.stdout is not None
            assert following.stdout.readline() == "hello\n"
            following.send_signal(signal.SIGINT)
            _, err = following.communicate(timeout=20)
        finally:
            following.kill()
    assert (following.returncode, err) == (130, "trine: interrupted\n")


def test_ctrl_c_during_submit_tells_how_to_be_sure(daemon: FakeDaemon, state: Path) -> None:
    daemon.answering.clear()
    with process("submit", "--request-id", "abc", "--state", state, "--", "true") as submitting:
        try:
            with daemon.changed:
                assert daemon.changed.wait_for(lambda: bool(daemon.requests), 20)
            submitting.send_signal(signal.SIGINT)
            _, err = submitting.communicate(timeout=20)
        finally:
            submitting.kill()
            daemon.answering.set()
    assert submitting.returncode == 130
    assert "--request-id abc" in err


def test_a_reader_that_leaves_ends_the_verb_quietly(daemon: FakeDaemon, state: Path) -> None:
    job_id = daemon.add("done")
    daemon.write(job_id, b"line\n" * 200_000)
    with process("logs", job_id, "--state", state) as printing:
        try:
            assert printing.stdout is not None
            printing.stdout.readline()
            printing.stdout.close()
            assert printing.stderr is not None
            err = printing.stderr.read()
            printing.wait(20)
        finally:
            printing.kill()
    assert (printing.returncode, err) == (1, "")


def test_a_verb_starts_without_the_heavy_imports(daemon: FakeDaemon, state: Path) -> None:
    daemon.add()
    program = (
        "import sys; sys.argv = ['trine', 'queue', '--state', sys.argv[1]]\n"
        "from trine.cli.main import main\n"
        "try: main()\n"
        "except SystemExit as end: assert not end.code\n"
        "heavy = {'pydantic', 'httpx', 'numpy', 'fastapi', 'rich', 'yaml', 'asyncio'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    done = subprocess.run([sys.executable, "-c", program, state], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("pos")


def test_watching_prints_the_table_again_when_it_changes(daemon: FakeDaemon, state: Path) -> None:
    job_id = daemon.add("waiting")
    with process(
        "queue", "--watch", "--every", "0.1", "--state", state, env=os.environ | {"PYTHONUNBUFFERED": "1"}
    ) as watching:
        try:
            assert watching.stdout is not None
            assert "waiting" in watching.stdout.readline() + watching.stdout.readline()
            daemon.update(job_id, state="running")
            assert "running" in watching.stdout.readline() + watching.stdout.readline()
            watching.send_signal(signal.SIGINT)
            assert watching.wait(20) == 130
        finally:
            watching.kill()


def _on_a_terminal(state: Path, *arguments: str, columns: int) -> tuple[subprocess.Popen[bytes], int]:
    """A verb whose stdout is a terminal so many columns wide, and our end of it."""
    ours, theirs = os.openpty()
    environment = os.environ | {"COLUMNS": str(columns), "TERM": "xterm"}
    command = [sys.executable, "-m", "trine", *arguments, "--state", str(state)]
    started = subprocess.Popen(command, stdout=theirs, stderr=subprocess.PIPE, env=environment)
    os.close(theirs)
    return started, ours


def _read_until(descriptor: int, wanted: str) -> str:
    """What comes over the terminal until ``wanted`` did, or its other end is closed."""
    text = ""
    while wanted not in text:
        try:
            text += os.read(descriptor, 4096).decode()
        except OSError:
            return text
    return text


def test_a_table_fits_a_narrow_terminal_and_keeps_the_whole_reason(daemon: FakeDaemon, state: Path) -> None:
    daemon.add(reason={"code": "x", "sentence": "waits for GPUs " * 5, "change": "", "counts": {}})
    started, terminal = _on_a_terminal(state, "queue", columns=100)
    with started:
        lines = re.sub(r"\x1b\[[0-9;]*m", "", _read_until(terminal, "no end")).splitlines()
    os.close(terminal)
    assert max(map(len, lines)) <= 100
    assert "".join(lines).count("waits") == 5


def test_watching_on_a_terminal_shows_changes_and_gives_the_screen_back(daemon: FakeDaemon, state: Path) -> None:
    job_id = daemon.add("waiting")
    started, terminal = _on_a_terminal(state, "queue", "--watch", "--every", "0.1", columns=100)
    with started:
        try:
            assert "\x1b[?1049h" in _read_until(terminal, "waiting")
            daemon.update(job_id, state="running")
            assert "running" in _read_until(terminal, "running")
            started.send_signal(signal.SIGINT)
            assert "\x1b[?1049l" in _read_until(terminal, "\x1b[?1049l")
            assert started.wait(20) == 130
        finally:
            started.kill()
            os.close(terminal)
