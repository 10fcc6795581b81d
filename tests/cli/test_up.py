"""``trine up`` with options that are wrong: one sentence, exit code 2, nothing started, nothing left behind."""

from __future__ import annotations

import fcntl
import os
import socket
from collections.abc import Iterator
from inspect import signature
from pathlib import Path

import pytest
import structlog

from tests.cli.live.command import trine
from tests.e2e.live import daemon
from trine.cli.live.up import _retention, up
from trine.server.auth import open_auth
from trine.server.prune import Retention

GPUS = ("--gpus", "2x2")


@pytest.fixture(autouse=True)
def _logs_as_before() -> Iterator[None]:
    """The command sets up logging for its process, which here is that of all tests."""
    yield
    structlog.reset_defaults()


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state"


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--round", "0"), "--round: 0; expected a number of seconds greater than 0"),
        (("--round", "-3"), "--round: -3; expected"),
        (("--round", "nan"), "--round: nan; expected"),
        (("--round", "inf"), "--round: inf; expected"),
        (("--policy", "fofo"), "--policy: unknown policy 'fofo' (did you mean 'fifo'?); expected one of"),
        (("--placement", "pall"), "--placement: unknown placement 'pall' (did you mean 'pal'?)"),
        (("--set", "strickt=true"), "unknown key 'strickt' (did you mean 'strict'?)"),
        (("--set", "workload.jobs=5"), "--set: workload.jobs: a setting that only a simulation reads; expected none"),
        (("--set", "variability.cap=2"), "--set: variability.cap: a setting that only a simulation reads"),
        (("--set", "trace.seed=3"), "--set: trace.seed: a setting that only a simulation reads"),
        (("--set", "believed.type_error=1"), "--set: believed.type_error: a setting that only a simulation reads"),
        (("--set", "watts=v100=300"), "--set: watts: a setting that only a simulation reads"),
        (("--set", "run.event_driven=true"), "only a simulation reads; expected --event-driven"),
        (("--set", "compat.charge_gap=true"), "--set: compat.charge_gap: a setting that only a simulation reads"),
        (("--gpus", "0x2"), "expected a whole number of at least 1"),
        (("--gpus", "1000000x1000000"), "expected at most 1,000,000 GPUs"),
        (("--gpus", "missing.yaml"), "missing.yaml: no such file; expected a cluster file"),
        (("--config", "missing.yaml"), "missing.yaml: no such file; expected a daemon configuration file"),
        (("--variability", "missing.csv"), "missing.csv: no such file"),
        (("--throughputs", "missing.json"), "missing.json: no such file"),
        (("--tls-cert", "cert.pem"), "--tls-cert and --tls-key: only one of the two; expected both, or neither"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_wrong_options_are_refused_before_anything_is_made(
    options: tuple[str, ...], sentence: str, state: Path
) -> None:
    done = trine("up", *GPUS, *options, "--state", state)
    assert (done.code, done.out) == (2, "")
    assert sentence in done.err
    assert len(done.err.strip().splitlines()) == 1
    assert not state.exists()


@pytest.mark.parametrize("options", [("--round", "soon"), ("--polcy", "fifo"), ("extra",)])
def test_usage_errors_point_to_the_help(options: tuple[str, ...], state: Path) -> None:
    done = trine("up", *GPUS, *options, "--state", state)
    assert (done.code, done.out) == (2, "")
    assert "trine up --help" in done.err
    assert not state.exists()


def test_without_gpus_it_says_how_to_get_virtual_ones(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trine.executor.local.executor.discover", list)
    done = trine("up", "--state", state)
    assert done.code == 2
    assert "no GPU driver on this machine; expected virtual GPUs such as --gpus 2x2" in done.err
    assert not state.exists()


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("queues: {a: {wieght: 2}}\n", "config.yaml:1: queues.a: unknown key 'wieght' (did you mean 'weight'?)"),
        ("queues: [\n", "not valid YAML"),
        ("default_queue: nigt\nqueues: {night: }\n", "config.yaml:1"),
        ("queues: {night: {max_gpus: -1}}\n", "max_gpus"),
        ("just text\n", "expected a mapping of keys to values"),
    ],
)
def test_a_broken_configuration_is_named_with_its_line(text: str, sentence: str, state: Path, tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(text)
    done = trine("up", *GPUS, "--config", config, "--state", state)
    assert done.code == 2
    assert sentence in done.err
    assert not state.exists()


def test_a_port_in_use_is_refused_and_the_state_can_be_used_again(state: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = trine("up", *GPUS, "--state", state, "--port", str(port), "--quiet")
    assert done.code == 2
    assert f"127.0.0.1:{port}: cannot listen there" in done.err
    assert "a free port" in done.err
    assert not (state / "api.json").exists()
    assert trine("up", *GPUS, "--state", state, "--dry-run").code == 0


def test_a_state_directory_that_others_may_write_to_is_refused(state: Path) -> None:
    state.mkdir()
    state.chmod(0o777)
    done = trine("up", *GPUS, "--state", state)
    assert done.code == 2
    assert f"others may write to this directory (mode 777); expected mode 700: run chmod 700 {state}" in done.err
    assert not (state / "token").exists()


def test_a_token_that_others_may_read_is_refused(state: Path) -> None:
    open_auth(state)
    (state / "token").chmod(0o644)
    done = trine("up", *GPUS, "--state", state)
    assert done.code == 2
    assert "others may read this token (mode 644)" in done.err


def test_a_token_of_another_user_is_refused(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    open_auth(state)
    mine = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: mine + 1)
    done = trine("up", *GPUS, "--state", state)
    assert done.code == 2
    assert "belongs to user" in done.err
    assert "a token file of your own" in done.err


def test_a_second_daemon_on_the_same_state_is_refused(state: Path) -> None:
    state.mkdir(mode=0o700)
    with (state / "daemon.lock").open("w") as first:
        fcntl.flock(first, fcntl.LOCK_EX)
        first.write("4711")
        first.flush()
        done = trine("up", *GPUS, "--state", state)
    assert done.code == 1
    assert f"another daemon (process 4711) already runs with {state}" in done.err


def test_a_dry_run_of_a_new_daemon_writes_nothing(state: Path) -> None:
    done = trine("up", *GPUS, "--policy", "srtf", "--round", "5", "--state", state, "--dry-run")
    assert (done.code, done.err) == (0, "")
    assert "4 GPUs on 2 nodes" in done.out
    assert "Policy srtf, placement packed-sticky, rounds of 5 s." in done.out
    assert "would stop 0 and start 0 jobs" in done.out
    assert not state.exists()


@pytest.mark.parametrize("options", [("--policy", "gandiva"), ("--policy", "makespan", "--set", "space_sharing=true")])
def test_policies_that_share_gpus_are_taken(options: tuple[str, ...], state: Path) -> None:
    done = trine("up", *GPUS, *options, "--share-between-users", "--state", state, "--dry-run")
    assert (done.code, done.err) == (0, "")


@pytest.mark.slow
def test_a_dry_run_on_a_journal_says_what_would_start_and_changes_nothing(state: Path) -> None:
    with daemon(state, "--gpus", "1x1") as site:
        client = site.up()
        first, second = client.submit([{"run": ["sleep", "600"]}, {"run": ["sleep", "600"], "name": "second"}])
        client.drain("node0")
        client.cancel(first)
        assert client.wait(first, timeout_s=60)["state"] == "cancelled"
        site.stop()
    before = {path: path.read_bytes() for path in state.rglob("*") if path.is_file()}
    done = trine("up", *GPUS, "--state", state, "--dry-run")
    assert (done.code, done.err) == (0, "")
    assert "Jobs on record that have not ended: 1, with GPUs: 0." in done.out
    assert f"job {second} starts on 1 GPU on node node1." in done.out
    assert {path: path.read_bytes() for path in state.rglob("*") if path.is_file()} == before


def test_help_names_every_option_and_starts_nothing(state: Path) -> None:
    done = trine("up", "--help", "--state", state)
    assert (done.code, done.err) == (0, "")
    for option in ("--gpus", "--policy", "--round", "--config", "--store", "--lease", "--dry-run", "--truncate"):
        assert option in done.out
    assert not state.exists()


def test_what_is_kept_by_default_is_what_the_page_says() -> None:
    """docs/operations.md: 30 days, checkpoints and records for ever; checkpoints go only with a time that was given."""
    assert _retention(None, 100_000, "forever") == Retention(30 * 86_400.0, 100_000, False, None) == Retention()
    assert _retention("90d", 5, "8w") == Retention(90 * 86_400.0, 5, True, 56 * 86_400.0)
    defaults = {name: each.default for name, each in signature(up).parameters.items()}
    assert [defaults[name] for name in ("keep_jobs", "keep_ended", "keep_journal")] == [None, 100_000, "forever"]
