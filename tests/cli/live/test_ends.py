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
from trine.cli.tables import width

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
    assert (following.returncode, err) == (130, "trine: interrupted; job 1 is not affected\n")


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


@pytest.mark.parametrize("columns", [200, 80, 60, 30])
def test_a_table_fits_a_terminal_and_always_shows_ids(daemon: FakeDaemon, state: Path, columns: int) -> None:
    place = [{"node": f"node{i}", "gpus": [0, 1, 2, 3]} for i in range(4)]
    reason = {"code": "x", "sentence": "waits for GPUs " * 8, "change": "", "counts": {}}
    daemon.add("running", name="a-very-long-name-" * 7, placement=place, reason=reason)
    daemon.update("1", max_runtime_s=1.2e5, run_from_s=1.7e9)
    daemon.jobs["1"]["id"] = "123456"
    daemon.add("failed", exit_code=-9, name="实验" * 20, user="somebody-else", finished_s=1.7e9 + 9)
    started, terminal = _on_a_terminal(state, "queue", "--all", columns=columns)
    with started:
        lines = _read_until(terminal, "no end").splitlines()
    os.close(terminal)
    assert len(lines) == 3
    assert max(map(width, lines)) <= columns
    assert re.search(r"(^| )123456 ", lines[1]) and re.search(r"(^| )2 ", lines[2])
    assert "a-very" in lines[1] and "running" in lines[1]
    if columns == 80:
        for name in ("id", "name", "user", "state", "gpus", "where", "elapsed", "limit", "reason"):
            assert name in lines[0].split()
        assert "…" in lines[1] and "waits" in lines[1]


def test_a_short_table_keeps_its_names_and_reasons_whole(daemon: FakeDaemon, state: Path) -> None:
    reason = {"code": "x", "sentence": "2 of 4 GPUs are free.", "change": "", "counts": {}}
    daemon.add(name="train-resnet", reason=reason)
    started, terminal = _on_a_terminal(state, "queue", columns=80)
    with started:
        lines = _read_until(terminal, "no end").splitlines()
    os.close(terminal)
    assert "train-resnet" in lines[1] and lines[1].endswith("2 of 4 GPUs are free.")


@pytest.mark.parametrize(
    "line", [["-h"], ["queue", "-h"], ["token", "-h"], ["token", "add", "-h"], ["sim", "run", "-h"]]
)
def test_short_help_is_help(line: list[str]) -> None:
    short, long = trine(*line), trine(*line[:-1], "--help")
    assert short.code == 0 and short.out == long.out and short.out.startswith("Usage: ")


def test_help_is_quick(state: Path) -> None:
    """Nothing heavy is imported for it, the completion neither."""
    program = (
        "import sys; sys.argv = ['trine', '--help']\n"
        "from trine.cli.main import main\n"
        "try: main()\n"
        "except SystemExit as end: assert not end.code\n"
        "heavy = {'pydantic', 'numpy', 'rich', 'trine.cli.completion', 'trine.cli.live.queue'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_letters_that_the_terminal_lacks_do_not_end_the_verb(daemon: FakeDaemon, state: Path) -> None:
    daemon.add(name="实验")
    with process("queue", "--state", state, env=os.environ | {"PYTHONIOENCODING": "latin-1"}) as printing:
        out, err = printing.communicate(timeout=20)
    assert (printing.returncode, err) == (0, "")
    assert "??" in out


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


@pytest.mark.parametrize("verb", ["show", "explain", "logs", "wait", "hold", "release"])
@pytest.mark.parametrize("text", ["my run", "", "a/b"])
def test_what_cannot_be_an_id_is_told_what_is_expected(daemon: FakeDaemon, state: Path, verb: str, text: str) -> None:
    done = trine(verb, "--state", state, text)
    assert (done.code, done.out) == (2, "")
    assert done.err == f"trine: JOB: {text!r}; expected the id of a job, which `trine queue` lists\n"


def test_the_list_of_verbs_is_not_cut_in_a_terminal_of_80_columns() -> None:
    done = process("--help", env={**os.environ, "COLUMNS": "80"})
    out, _ = done.communicate(timeout=60)
    lines = [line for line in out.splitlines() if line.split()[:1] and line.split()[0] in VERBS]
    assert len(lines) == len(VERBS)
    assert not [line for line in lines if line.endswith("...")]
