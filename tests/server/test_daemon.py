"""Around the scheduler: one daemon per state directory, a dry run without a trace, limits from the configuration."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.server.site import OWNER, Site, spec
from trine.core.atomic_file import write_private
from trine.core.errors import InputError
from trine.executor.accounts import blocking_directory
from trine.executor.base import NodeGpu, NodeInfo
from trine.executor.local.executor import LocalEngine
from trine.inputs.job_spec import JobSpec
from trine.profile.measurements import MeasurementRecord
from trine.profile.profile_json import save_profile
from trine.profile.profile_matching import load_any
from trine.profile.variability_profile import build_profile
from trine.server import configuration, daemon
from trine.server.access import Access, Queue, UserLimits, WaitingJobs
from trine.server.api import serve
from trine.server.api.serve import bind
from trine.server.auth import UserToken
from trine.server.configuration import Options, prepare, quotas_of
from trine.server.daemon import dry_run
from trine.server.interface import Caller, Refused
from trine.server.inventory import cluster_of
from trine.server.records import cluster_from_record, cluster_to_record
from trine.server.state_directory import AlreadyUpError
from trine.server.store import DamagedJournalError


def not_ready(url: str) -> None:
    raise AssertionError(f"serves at {url}")


def test_a_second_daemon_with_the_same_state_is_refused_and_named(tmp_path: Path) -> None:
    with (tmp_path / "daemon.lock").open("w") as lock:
        lock.write("4711")
        lock.flush()
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(AlreadyUpError, match=rf"another daemon \(process 4711\) already runs with {tmp_path}"):
            daemon.run(Options(tmp_path, "2x2"), not_ready)
        assert (tmp_path / "daemon.lock").read_text() == "4711"
        assert not (tmp_path / "api.json").exists()


def test_a_link_in_place_of_the_lock_is_refused_and_not_followed(tmp_path: Path) -> None:
    victim, state = tmp_path / "victim", tmp_path / "state"
    victim.write_text("precious")
    state.mkdir(mode=0o700)
    (state / "daemon.lock").symlink_to(victim)
    with pytest.raises(InputError, match=r"daemon\.lock: a link; expected a plain file"):
        daemon.run(Options(state, "2x2", port=0), not_ready)
    assert victim.read_text() == "precious"
    (state / "daemon.lock").unlink()
    os.mkfifo(state / "daemon.lock")
    with pytest.raises(InputError, match=r"daemon\.lock: not a plain file"):
        daemon.run(Options(state, "2x2", port=0), not_ready)


def test_the_usual_port_is_taken_if_it_is_free_and_another_if_not(monkeypatch: pytest.MonkeyPatch) -> None:
    with bind("127.0.0.1", 0) as taken:
        monkeypatch.setattr(serve, "USUAL_PORT", taken.getsockname()[1])
        with bind("127.0.0.1", None) as other:
            assert other.getsockname()[1] not in (0, taken.getsockname()[1])
    with bind("127.0.0.1", None) as usual:
        assert usual.getsockname()[1] == serve.USUAL_PORT
        with pytest.raises(InputError, match="cannot listen there"):
            bind("127.0.0.1", serve.USUAL_PORT)


@pytest.mark.parametrize(
    ("host", "names", "reached"),
    [
        ("0.0.0.0", None, "http://127.0.0.1"),
        ("127.0.0.1", None, "http://127.0.0.1"),
        ("0.0.0.0", ["*.lab", "gpu.lab", "10.0.0.5"], "https://gpu.lab"),
        ("0.0.0.0", ["gpu.lab", "localhost"], "https://localhost"),
        ("0.0.0.0", ["gpu.lab", "127.0.0.1"], "https://127.0.0.1"),
        ("0.0.0.0", [], "https://127.0.0.1"),
        ("127.0.0.1", ["*.lab"], "https://127.0.0.1"),
    ],
)
def test_the_address_that_is_told_is_one_that_can_be_used(
    host: str, names: list[str] | None, reached: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serve, "certificate_names", lambda _: names)
    with bind(host, 0) as listener:
        tls = None if names is None else (Path("cert.pem"), Path("key.pem"))
        assert serve.usable_url(host, listener, tls) == f"{reached}:{listener.getsockname()[1]}"


@pytest.mark.parametrize("known_by", ["--job-user", "token", "config"])
def test_root_refuses_a_state_directory_that_jobs_of_others_cannot_reach(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, known_by: str
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    state = closed / "state"
    options = Options(state, "2x2", port=0)
    prepare(options)  # root alone may
    if known_by == "token":
        monkeypatch.setattr(configuration, "user_tokens", lambda _: [UserToken("1", "nobody")])
    elif known_by == "config":
        (tmp_path / "config.yaml").write_text("users: {nobody: {max_gpus: 1}}\n")
    told = {"--job-user": {"job_user": "nobody"}, "config": {"config": tmp_path / "config.yaml"}}.get(known_by, {})
    with pytest.raises(InputError) as refused:
        daemon.run(replace(options, **told), not_ready)  # type: ignore[arg-type]
    first = blocking_directory(state, "nobody")
    assert f"jobs of user nobody cannot get there, {first} (mode 700) lets them not pass" in str(refused.value)
    assert "--state /var/lib/trine" in str(refused.value)
    assert not state.exists()


def test_jobs_of_users_who_come_later_are_refused_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their tokens were made after the daemon had been started in a directory of root's own."""
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    (tmp_path / "closed").mkdir(mode=0o700)
    access = prepare(Options(tmp_path / "closed" / "state", "2x2")).access
    with pytest.raises(Refused, match=r"Jobs of nobody cannot run: nobody may not pass through /.* to the daemon's"):
        access.admit([JobSpec.model_validate({"run": ["true"]})], Caller("nobody"), WaitingJobs())
    root = Caller("root", admin=True)
    assert access.admit([JobSpec.model_validate({"run": ["true"]})], root, WaitingJobs())[0].user == "root"


def test_who_may_pass_through_a_directory(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir(mode=0o700)
    assert blocking_directory(tmp_path / "a" / "state", "nobody") != ""
    assert blocking_directory(tmp_path / "a" / "state", "root") == ""
    assert blocking_directory(Path("/var/lib/trine"), "nobody") == ""


def test_a_lock_that_a_dead_daemon_left_behind_is_none(tmp_path: Path) -> None:
    (tmp_path / "daemon.lock").write_text("4711")
    (tmp_path / "journal.db").write_bytes(b"not a database" * 100)
    with pytest.raises(InputError, match="not a database"):
        daemon.run(Options(tmp_path, "2x2"), not_ready)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"policy": "fi-fo"}, "fifo"),
        ({"placement": "pakced"}, "packed"),
        ({"settings": {"no_such_key": 1}}, "no_such_key"),
        ({"gpus": "2xx2"}, "2xx2"),
        ({"round_s": 60.0, "settings": {"locality_penalty": 0.5}}, "locality_penalty"),
    ],
)
def test_wrong_options_are_found_before_anything_is_made(
    options: dict[str, object], sentence: str, tmp_path: Path
) -> None:
    home = tmp_path / "state"
    with pytest.raises(InputError, match=sentence):
        daemon.run(Options(home, **({"gpus": "2x2"} | options)), not_ready)  # type: ignore[arg-type]
    assert not home.exists()


def test_a_profile_is_taken_as_the_simulator_takes_it(tmp_path: Path) -> None:
    """The same file for both, whether a profile or a table."""
    records = [
        MeasurementRecord(f"node{n}-gpu{g}", "A", 100.0 + 10 * (2 * n + g), node=f"node{n}")
        for n in range(2)
        for g in range(2)
        if (n, g) != (1, 1)
    ]
    profile = tmp_path / "profile.json"
    save_profile(build_profile(records), profile)
    options = Options(tmp_path / "state", "2x2", variability=str(profile), placement="pal")
    setup = prepare(options).setup
    table, _ = load_any(profile, setup.cluster)
    assert setup.cluster.scores == {"A": tuple(table.slowdown("A"))}
    assert len(set(setup.cluster.scores["A"])) > 1
    assert "Note: " in dry_run(options)[1] and "GPU 3 is not measured" in dry_run(options)[1]
    csv = tmp_path / "table.csv"
    csv.write_text("gpu,node,slowdown_A\n0,0,1\n1,0,1.5\n2,1,1\n3,1,1\n")
    assert prepare(replace(options, variability=str(csv))).setup.cluster.scores == {"A": (1.0, 1.5, 1.0, 1.0)}


@pytest.mark.parametrize(("gpus", "shape"), [("8", [("gpu", 8)]), ("v100=8", [("v100", 8)]), ("2x4", [("gpu", 4)] * 2)])
def test_a_number_of_gpus_is_one_node(tmp_path: Path, gpus: str, shape: list[tuple[str, int]]) -> None:
    _, nodes, setup, *_ = prepare(Options(tmp_path, gpus))
    assert [(node.gpu_type, node.gpus) for node in setup.cluster.nodes] == shape
    assert [len(node.gpus) for node in nodes] == [count for _, count in shape]


def test_prices_by_type_make_min_cost_possible_and_are_on_record(tmp_path: Path) -> None:
    options = Options(tmp_path, "v100=1x2,k80=1x2", "min-cost")
    with pytest.raises(InputError, match="--prices"):
        prepare(options)
    cluster = prepare(replace(options, prices="v100=2.5,k80=0.5")).setup.cluster
    assert cluster_from_record(cluster_to_record(cluster)).prices_per_gpu_h == {"v100": 2.5, "k80": 0.5}
    with pytest.raises(InputError, match="no price for k80"):
        prepare(replace(options, prices="v100=2.5"))
    changing = tmp_path / "prices.csv"
    changing.write_text("time_s,gpu_type,price_per_h\n0,v100,1\n0,k80,1\n60,v100,2\n")
    with pytest.raises(InputError, match=r"prices of v100 .* change over time; expected one price per type"):
        prepare(replace(options, prices=str(changing)))


def test_a_dry_run_says_what_would_happen_and_leaves_no_trace(tmp_path: Path) -> None:
    home = tmp_path / "state"
    told = dry_run(Options(home, "2x2", "srtf", round_s=30.0))
    assert told[0].startswith("4 GPUs on 2 nodes") and "virtual" in told[0]
    assert "not ended: 0" in told[2] and told[-1].endswith("would stop 0 and start 0 jobs.")
    assert not home.exists()
    dry_run(Options(home, "2x2", store=f"sqlite:///{tmp_path / 'other.db'}"))
    assert not home.exists()


def test_a_dry_run_over_a_journal_decides_its_first_round(tmp_path: Path) -> None:
    async def record() -> None:
        site = Site(tmp_path)
        scheduler = await site.up()
        await scheduler.submit([spec(3), spec(2), spec(1)], OWNER)
        await site.quiet()
        await site.crash()

    asyncio.run(record())
    before = (tmp_path / "journal.db").read_bytes()
    told = dry_run(Options(tmp_path, "4x2"))
    assert "Jobs on record that have not ended: 3, with GPUs: 1." in told
    assert told[-1].endswith("would stop 0 and start 2 jobs.")
    assert (tmp_path / "journal.db").read_bytes() == before
    assert sorted(p.name for p in tmp_path.iterdir() if p.name.startswith("journal")) == ["journal.db"]


def test_a_damaged_journal_can_be_cut_on_demand(tmp_path: Path) -> None:
    import sqlite3

    async def record() -> None:
        site = Site(tmp_path)
        scheduler = await site.up()
        await scheduler.submit([spec(1)], OWNER)
        await site.quiet()
        await site.crash()

    asyncio.run(record())
    database = sqlite3.connect(tmp_path / "journal.db")
    last = database.execute("select max(seq) from journal").fetchone()[0]
    database.execute("update journal set body = '{}' where seq = ?", (last,))
    database.commit()
    database.close()
    with pytest.raises(DamagedJournalError, match=rf"--truncate {last - 1}"):
        dry_run(Options(tmp_path, "2x2"))
    store = daemon.open_store(Options(tmp_path, "2x2", truncate=last - 1))
    assert list(store.load().jobs) == ["1"]
    store.close()


def test_limits_of_queues_and_users_become_quotas() -> None:
    access = Access(
        queues={"a": Queue("a", max_gpus=4), "b": Queue("b")},
        users={"ann": UserLimits(max_gpus=2), "bob": UserLimits(max_waiting=3)},
    )
    quotas = quotas_of(access)
    assert (quotas.by_group, quotas.by_user) == ({"a": 4}, {"ann": 2})
    assert not quotas_of(Access())


def test_a_machine_with_gpus_of_two_types_is_not_described_wrongly() -> None:
    mixed = NodeInfo("box", (NodeGpu(0, "a100"), NodeGpu(1, "v100")))
    with pytest.raises(InputError, match="a100, v100 in one machine"):
        cluster_of([mixed])
    some = cluster_of([NodeInfo("box", (NodeGpu(1, "a100"), NodeGpu(3, "a100")))])
    assert [some.index_of(gpu) for gpu in range(2)] == [1, 3], "as the driver counts, so that jobs get those"
    plain = NodeInfo("box", (NodeGpu(0, "a100"), NodeGpu(1, "a100")), labels={"rack": "r7"})
    assert cluster_of([plain]).nodes[0].rack == "r7"


def test_private_files_are_for_their_owner_only_and_whole(tmp_path: Path) -> None:
    path = tmp_path / "token"
    write_private(path, "old")
    write_private(path, "secret")
    assert path.read_text() == "secret"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [path]


_FEW_DESCRIPTORS = """
import os, resource
from trine.server.daemon import new_event_loop
opened = len(os.listdir("/proc/self/fd")) - 1
for spare in range(24):
    resource.setrlimit(resource.RLIMIT_NOFILE, (opened + spare, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    try:
        new_event_loop().close()
    except OSError as error:
        print(error.errno)
"""


def test_too_few_descriptors_for_an_event_loop_are_an_error_and_not_the_end() -> None:
    """libuv aborts the whole process where it cannot open its own."""
    done = subprocess.run([sys.executable, "-c", _FEW_DESCRIPTORS], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert set(done.stdout.split()) == {str(errno.EMFILE)}


def test_settings_of_the_executor_are_its_own_and_not_on_record(tmp_path: Path) -> None:
    options = Options(tmp_path, "2x2", settings={"engine.progress_s": "0.5", "engine.cgroups": "no", "strict": "true"})
    prepared = prepare(options)
    assert (prepared.engine.name, prepared.setup.settings) == ("local", {"strict": "true"})
    assert prepared.engine == replace(LocalEngine(), progress_s=0.5, cgroups=False)
    with pytest.raises(InputError, match=r"engine\.progress_s: .*'0'; expected at least 0\.01"):
        prepare(replace(options, settings={"engine.progress_s": "0"}))
    with pytest.raises(InputError, match="unknown engine 'pbs'"):
        prepare(replace(options, engine="pbs"))
