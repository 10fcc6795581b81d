"""Parts and leader of an attempt as other engines use them: real processes that see nothing of each other but files."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import trine
from tests.executor.driving import DEADLINE_S, TRAINER, Driver, LocalEngine, fill, running, small_disk, unique_s, until
from trine.executor.attempt import leader, rundir
from trine.executor.attempt.clocks import SharedClock, difference_s
from trine.executor.attempt.fence import Fences
from trine.executor.attempt.heartbeat import Silence
from trine.executor.attempt.leader import merged
from trine.executor.attempt.processes import marked, parents
from trine.executor.attempt.spec import Site, make_spec
from trine.executor.attempt.state_dir import StateDir
from trine.executor.base import AttemptExited, Handle, JobLease, LaunchFailed

SRC = str(Path(trine.__file__).parents[1])
NODES = ("node0", "node1")
SITE = Site(dict.fromkeys(NODES, "127.0.0.1"), "lo", part_per_node=True, look_s=0.05)
WAITS = "trap 'exit 85' TERM; echo ready; while :; do sleep 0.02; done"


class Gang:
    """One attempt in a directory: a part per node, and a leader that starts them through a shell."""

    def __init__(self, home: Path) -> None:
        self.state = StateDir(home / "state")
        self.run_dir = self.state.run_dir(Handle("7", 1))
        self.processes: list[subprocess.Popen[bytes]] = []

    def prepare(self, script: str = WAITS, site: Site = SITE, **changes: Any) -> None:
        placement = tuple((node, (0,)) for node in NODES)
        lease = JobLease("7", 1, placement, ("/bin/sh", "-c", script), **{"grace_s": 5.0, "lease_s": 60.0, **changes})
        self.state.prepare(lease, make_spec(lease, os.environ, 0, "", "", site))

    @property
    def spec(self) -> dict[str, Any]:
        return rundir.read_json(str(self.run_dir / rundir.SPEC)) or {}

    def start(self, module: str, *arguments: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(_command(module, str(self.run_dir), *arguments))
        self.processes.append(process)
        return process

    def lead(self, nodes: tuple[str, ...] = NODES) -> subprocess.Popen[bytes]:
        """A leader whose command starts the parts of these nodes and stays until they have ended."""
        parts = " ".join(f"{' '.join(map(_quoted, _command('part', str(self.run_dir), node)))} &" for node in nodes)
        return self.start("leader", "--", "/bin/sh", "-c", f"{parts} wait")

    def pid(self, index: int) -> int:
        return int((self.read(rundir.part_file(index)) or {})["pid"])

    def read(self, name: str) -> dict[str, Any] | None:
        return rundir.read_json(str(self.run_dir / name))

    def started(self) -> None:
        until(lambda: any(line["ev"] == "started" for line in rundir.read_status(str(self.run_dir))), "all ranks")

    def ready(self) -> None:
        """Both scripts are where they can hear a signal."""
        until(lambda: all("ready" in self.log(rank) for rank in range(len(NODES))), "both scripts")

    def log(self, rank: int) -> str:
        path = self.run_dir.parent / ("log" if rank == 0 else f"log.{rank}")
        return path.read_text() if path.exists() else ""

    def stop(self, **wish: Any) -> None:
        rundir.write_json(str(self.run_dir / rundir.STOP), wish)

    def renew(self, renewal: int) -> None:
        lease = self.read(rundir.LEASE) or {}
        rundir.write_json(str(self.run_dir / rundir.LEASE), {**lease, "renewal": renewal}, 0o644)

    def left(self) -> list[int]:
        return marked(f"TRINE_RUN_DIR={self.run_dir}")

    def end(self) -> dict[str, Any]:
        """The record of the end; when it is there, no process is left."""
        found = until(lambda: self.read(rundir.EXIT), "the end")
        assert self.left() == []
        return {name: found[name] for name in ("kind", "rc", "reason") if found.get(name) != ""}

    def close(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait(30)
        for pid in self.left():
            os.kill(pid, signal.SIGKILL)
        until(lambda: not self.left(), "the end of all processes")


def _command(module: str, *arguments: str) -> list[str]:
    code = f"import sys; sys.path.append({SRC!r}); from trine.executor.attempt.{module} import main; "
    return [sys.executable, "-I", "-S", "-c", f"{code}sys.exit(main(sys.argv[1:]))", *arguments]


def _quoted(word: str) -> str:
    return "'" + word.replace("'", "'\\''") + "'"


@pytest.fixture
def gang(tmp_path: Path) -> Iterator[Gang]:
    gang = Gang(tmp_path)
    try:
        yield gang
    finally:
        gang.close()


def test_ranks_on_two_nodes_find_each_other_and_end_as_one(gang: Gang) -> None:
    gang.prepare("echo $RANK of $WORLD_SIZE on $TRINE_NODE at $MASTER_ADDR:$MASTER_PORT over $GLOO_SOCKET_IFNAME")
    gang.lead()
    assert gang.end() == {"kind": "done", "rc": 0}
    port = json.loads((gang.run_dir / rundir.PORT).read_text())["port"]
    assert [gang.log(rank).strip() for rank in range(2)] == [
        f"{rank} of 2 on node{rank} at 127.0.0.1:{port} over lo" for rank in range(2)
    ]
    gang.started()


def test_an_engine_may_leave_the_interface_to_the_libraries(gang: Gang) -> None:
    site = Site({"node0": "host-a"}, "", part_per_node=True, look_s=0.05)
    gang.prepare("echo over ${GLOO_SOCKET_IFNAME-none} from $MASTER_ADDR", site)
    gang.lead()
    assert gang.end()["kind"] == "done" and gang.log(1) == "over none from host-a\n"


def test_the_first_failure_ends_the_parts_of_all_nodes_and_is_to_blame(gang: Gang) -> None:
    gang.prepare("echo ready; [ $RANK = 1 ] && exit 7; trap 'exit 9' TERM; while :; do sleep 0.02; done")
    gang.lead()
    assert gang.end() == {"kind": "failed", "rc": 7, "reason": "rank 1 of 2 ended with exit code 7"}


def test_the_rank_that_failed_first_is_to_blame_although_another_was_told_first(gang: Gang) -> None:
    """A part that cannot write its news at once, as one whose machine or file server is busy: its peer fails later."""
    wait = "while [ ! -e $TRINE_RUN_DIR/noticed ]; do sleep 0.02; done"
    gang.prepare(f"if [ $RANK = 1 ]; then exit 7; fi; {wait}; exit 1", grace_s=0.2)
    rundir.write_json(str(gang.run_dir / rundir.PORT), {"port": 29_000})
    gang.start("part", "node0")
    command = [sys.executable, "-I", "-S", "-c", _SLOW_TO_TELL, str(gang.run_dir), "node1"]
    gang.processes.append(subprocess.Popen(command))
    gang.start("leader", "--", "/bin/sleep", "20")
    assert gang.end() == {"kind": "failed", "rc": 7, "reason": "rank 1 of 2 ended with exit code 7"}
    assert (gang.read(rundir.HALT) or {})["rank"] == 0, "the other one was told first"


_SLOW_TO_TELL = f"""
import sys, time
sys.path.append({SRC!r})
from trine.executor.attempt import part, rundir
at_once = rundir.claim
def late(run_dir, value, name=rundir.PID):
    if name == rundir.HALT:
        rundir.write_json(run_dir + "/noticed", {{}})
        deadline = time.monotonic() + 60
        while rundir.read_json(run_dir + "/" + rundir.HALT) is None and time.monotonic() < deadline:
            time.sleep(0.01)
    return at_once(run_dir, value, name)
rundir.claim = late
sys.exit(part.main(sys.argv[1:]))
"""


@pytest.mark.parametrize("told", [0, 1], ids=["first told first", "first told last"])
@pytest.mark.parametrize("order", [1, -1])
def test_who_is_to_blame_does_not_depend_on_the_order_of_the_news(told: int, order: int) -> None:
    failures = [(1, 7, 100.0), (0, 1, 100.004)]
    ends = [{"codes": {str(rank): rc}, "asked": "", "failure": [rank, rc, at_s]} for rank, rc, at_s in failures]
    halt = dict(zip(("rank", "rc", "t"), failures[told], strict=True))
    end = merged({"ranks": [{}] * 2}, ends[::order], halt)
    assert end == {"kind": "failed", "rc": 7, "reason": "rank 1 of 2 ended with exit code 7"}


@pytest.mark.parametrize(
    ("theirs_s", "found_s"), [(100.0, 0.0), (100.2, 0.0), (99.99, 0.0), (130.1, 30.0), (40.1, -60.0)]
)
def test_clocks_differ_only_where_that_can_be_seen(theirs_s: float, found_s: float) -> None:
    assert difference_s(100.0, theirs_s, 100.2, 0.02) == pytest.approx(found_s)


def test_a_part_goes_by_the_clock_of_its_file_system(tmp_path: Path) -> None:
    """A file server whose clock is an hour ahead of that of the node."""
    (tmp_path / "file").touch()
    before_s = time.time()
    os.utime(tmp_path / "file", (before_s + 3600, before_s + 3600))
    assert SharedClock(str(tmp_path / "file"), before_s).now_s() == pytest.approx(before_s + 3600, abs=5.0)


def test_a_command_that_stays_when_all_parts_have_ended_is_ended_with_what_it_started(
    gang: Gang,
) -> None:
    """An srun whose step nobody looks after any more, with a child, neither of which hears TERM."""
    stays = unique_s()
    gang.prepare("exit 0")
    parts = [gang.start("part", node) for node in NODES]
    led = gang.start("leader", "--", "/bin/sh", "-c", f"trap '' TERM; (setsid sleep {stays} &) ; sleep {stays}")
    assert gang.end() == {"kind": "done", "rc": 0}
    assert [part.wait(DEADLINE_S) for part in parts] == [0, 0]
    assert led.wait(DEADLINE_S) == 0 and running(stays) == []


def test_a_wish_to_stop_reaches_all_parts_by_file(gang: Gang) -> None:
    gang.prepare()
    gang.lead()
    gang.ready()
    gang.stop(grace_s=20.0)
    assert gang.end() == {"kind": "preempted", "rc": 85}
    assert (gang.read(rundir.EXIT) or {})["grace_s"] == 20.0


def test_a_rank_that_fails_because_its_peers_have_left_is_no_failure(gang: Gang) -> None:
    """Rank 1 hears nothing of the stop and fails when rank 0 is gone, before its own part has seen the wish."""
    gone = gang.state.jobs.parent.parent / "gone"
    script = f"trap 'touch {gone}; exit 85' TERM; echo ready; while :; do sleep 0.02; done"
    fails = f"trap '' TERM; echo ready; while [ ! -e {gone} ]; do sleep 0.02; done; exit 1"
    gang.prepare(f"if [ $RANK = 0 ]; then {script}; else {fails}; fi", Site(SITE.addresses, "lo", True, look_s=0.05))
    gang.lead()
    gang.ready()
    gang.stop(grace_s=20.0)
    assert gang.end() == {"kind": "preempted", "rc": 1}


def test_what_stays_after_the_grace_is_killed_on_all_nodes(gang: Gang) -> None:
    gang.prepare("trap '' TERM; echo ready; while :; do sleep 0.02; done")
    gang.lead()
    gang.ready()
    gang.stop(grace_s=0.2)
    assert gang.end() == {"kind": "preempted", "rc": 137}
    assert (gang.read(rundir.EXIT) or {})["killed"] is True


def test_an_attempt_is_killed_by_file(gang: Gang) -> None:
    gang.prepare("trap '' TERM; echo ready; while :; do sleep 0.02; done")
    gang.lead()
    gang.ready()
    gang.stop(kill=True)
    assert gang.end() == {"kind": "failed", "rc": 137, "reason": "killed on request"}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_of_the_engine_is_a_stop_and_never_a_failure(gang: Gang, number: signal.Signals) -> None:
    gang.prepare()
    leads = gang.lead()
    gang.ready()
    for pid in (leads.pid, gang.pid(0), gang.pid(1)):
        os.kill(pid, number)
    assert gang.end() == {"kind": "preempted", "rc": 85}


def test_a_part_that_is_started_twice_runs_once(gang: Gang) -> None:
    """As an engine does that has forgotten that it started a job a second ago."""
    gang.prepare()
    gang.lead()
    gang.ready()
    assert gang.start("part", "node0").wait(30) == 0
    assert gang.start("leader", "--", "/bin/false").wait(30) == 0
    assert gang.log(0).count("ready") == 1 and gang.read(rundir.EXIT) is None
    gang.stop(grace_s=5.0)
    assert gang.end()["kind"] == "preempted"


def test_a_part_that_cannot_start_its_ranks_ends_the_others_and_says_why(gang: Gang) -> None:
    gang.prepare(workdir="/no/such/place")
    gang.lead()
    assert gang.end() == {"kind": "unlaunched", "rc": 126, "reason": "/no/such/place: No such file or directory"}


def test_a_part_that_cannot_start_takes_those_along_that_run_already(gang: Gang) -> None:
    gang.prepare()
    (gang.run_dir.parent / "log.1").mkdir()
    gang.lead()
    end = gang.end()
    assert end["kind"] == "unlaunched" and "log.1" in end["reason"]


def test_a_part_that_is_never_started_is_not_the_fault_of_the_job(gang: Gang) -> None:
    gang.prepare("echo ready")
    gang.start("leader", "--", "/bin/false")
    end = gang.end()
    assert end["kind"] == "unlaunched" and "none of its parts was started" in end["reason"]
    assert (gang.read(rundir.EXIT) or {})["host"] is True
    assert gang.start("part", "node0").wait(30) == 0
    assert gang.log(0) == "", "too late: nobody waits for it any more"


def test_a_lease_that_is_not_renewed_ends_scripts_that_know_nothing_of_it(gang: Gang) -> None:
    gang.prepare("trap '' TERM; echo ready; while :; do sleep 0.02; done", lease_s=1.5, grace_s=0.2)
    began = time.monotonic()
    gang.lead()
    assert gang.end() == {"kind": "preempted", "rc": 137, "reason": "its lease was not renewed in time"}
    assert time.monotonic() - began >= 1.5


def test_a_lease_that_is_renewed_holds(gang: Gang) -> None:
    gang.prepare(lease_s=1.0)
    gang.lead()
    gang.ready()
    until_s, renewal = time.monotonic() + 2.5, 1
    while time.monotonic() < until_s:
        gang.renew(renewal := renewal + 1)
        assert gang.read(rundir.EXIT) is None
        time.sleep(0.1)
    os.utime(gang.run_dir / rundir.LEASE)  # as on a full disk
    gang.stop(grace_s=5.0)
    assert gang.end() == {"kind": "preempted", "rc": 85}


def test_a_part_without_leader_and_peers_ends_itself_before_its_fence(gang: Gang) -> None:
    """Nobody sees it, nobody renews its lease: when the fence is over its GPU can be given on."""
    gang.prepare("trap '' TERM; echo ready; while :; do sleep 0.02; done", lease_s=1.0, grace_s=0.2)
    fences = Fences()
    fences.renewed(Handle("7", 1), 1.0, 0.2)
    rundir.write_json(str(gang.run_dir / rundir.PORT), {"port": 29_000})
    gang.start("part", "node1")
    until(gang.left, "its rank")
    assert leader.conclude(str(gang.run_dir), gang.spec, "its engine forgot it") is None, "it may still run"
    assert gang.start("part", "node0").wait(30) == 0 and gang.log(0) == "", "what had not begun never does"
    until(lambda: not gang.left(), "the end")
    assert not fences.over(Handle("7", 1)), "the fence is never earlier than the end"
    end = until(lambda: leader.conclude(str(gang.run_dir), gang.spec, "its engine forgot it"), "what became of it")
    assert end["kind"] == "unlaunched"


_FILES_HANG = f"""
import sys, time
sys.path.append({SRC!r})
from trine.executor.attempt import part, rundir
begun = rundir.read_lease
def hang(run_dir):
    rundir.read_lease = lambda run_dir: time.sleep(1000)
    return begun(run_dir)
rundir.read_lease = hang
sys.exit(part.main(sys.argv[1:]))
"""


def test_a_part_whose_file_server_is_away_ends_its_ranks_in_time(gang: Gang) -> None:
    hidden = unique_s()
    gang.prepare(f"trap '' TERM; (setsid sleep {hidden} &); while :; do sleep 0.02; done", lease_s=1.0, grace_s=0.2)
    rundir.write_json(str(gang.run_dir / rundir.PORT), {"port": 29_000})
    command = [sys.executable, "-I", "-S", "-c", _FILES_HANG, str(gang.run_dir), "node1"]
    gang.processes.append(subprocess.Popen(command))
    until(lambda: running(hidden), "its rank")
    until(lambda: not gang.left() and not running(hidden), "the end of its lease")
    assert gang.read(rundir.part_file(1, "end")) is None, "it cannot say so"


def test_a_leader_that_does_not_hear_of_a_part_calls_it_lost_only_after_its_lease(gang: Gang) -> None:
    gang.prepare(lease_s=2.0, grace_s=0.2)
    gang.lead()
    gang.ready()
    os.kill(gang.pid(1), signal.SIGKILL)
    os.kill(gang.pid(0), signal.SIGTERM)
    killed = time.monotonic()
    assert gang.end() == {
        "kind": "lost",
        "rc": 137,
        "reason": "a part of it was not heard of until its lease was over",
    }
    assert time.monotonic() - killed > 2.2


def test_a_part_that_is_killed_outright_ends_the_gang_although_its_engine_says_nothing(gang: Gang) -> None:
    """The command that started it goes on, and so does the daemon that renews the lease."""
    gang.prepare(lease_s=2.0, grace_s=0.2)
    gang.lead()
    gang.ready()
    os.kill(gang.pid(1), signal.SIGKILL)
    deadline, renewal = time.monotonic() + 60.0, 1
    while gang.read(rundir.EXIT) is None:
        gang.renew(renewal := renewal + 1)
        assert time.monotonic() < deadline, "its leader waits for ever"
        time.sleep(0.1)
    assert gang.end()["kind"] == "lost"
    assert (gang.read(rundir.part_file(0, "end")) or {})["codes"] == {"0": 85}, "its peers save their work"


def test_a_part_whose_peers_are_not_there_yet_is_not_silent(gang: Gang) -> None:
    """It waits to be told where the ranks meet."""
    gang.prepare()
    gang.start("part", "node1")
    beat = gang.run_dir / rundir.beat_file(1)
    first = until(lambda: beat.exists() and beat.read_bytes(), "its first sign of life")
    until(lambda: beat.read_bytes() != first, "the next one")
    gang.stop(grace_s=0.0)


class Reader:
    """Looks once a second at the signs of life of one part, by a clock of its own."""

    def __init__(self, run_dir: Path) -> None:
        self.run_dir, self.now_s, self.count = run_dir, 0.0, 0
        rundir.claim(str(run_dir), {"pid": 1}, rundir.part_file(0))
        self.silence = Silence(str(run_dir), 1, lambda: self.now_s)

    def beat(self) -> None:
        self.count += 1
        rundir.write_beat(str(self.run_dir / rundir.beat_file(0)), self.count)

    def looks(self, seconds: int) -> float:
        """How long it was silent, after so many seconds of looking."""
        for _ in range(seconds):
            self.now_s += 1.0
            self.silence.longest_s()
        return self.silence.longest_s()


@pytest.fixture
def reader(tmp_path: Path) -> Reader:
    return Reader(tmp_path)


def test_the_silence_of_a_part_counts_from_its_last_sign(reader: Reader) -> None:
    reader.beat()
    assert reader.looks(20) == 19.0, "the first look found one"
    reader.beat()
    assert reader.looks(1) == 0.0
    assert reader.looks(5) == 5.0


def test_a_part_that_began_and_never_gave_a_sign_is_silent(reader: Reader) -> None:
    assert reader.looks(30) >= 29.0


def test_a_reader_that_was_away_does_not_blame_the_part(reader: Reader) -> None:
    """Suspended, stopped, or waiting for a file server that was gone for the part as well."""
    reader.beat()
    reader.looks(3)
    reader.now_s += 3_600.0
    assert reader.silence.longest_s() <= 4.0
    reader.beat()
    assert reader.looks(1) == 0.0


def test_a_sign_of_life_needs_no_room_on_a_full_disk(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "size=64k") as disk:
        reader = Reader(disk)
        reader.beat()
        fill(disk)
        reader.looks(10)
        reader.beat()
        assert reader.looks(1) == 0.0


def test_a_clock_that_is_set_back_on_the_node_makes_no_silence(reader: Reader) -> None:
    reader.beat()
    reader.looks(5)
    reader.beat()
    os.utime(reader.run_dir / rundir.beat_file(0), (0, 0))
    assert reader.looks(1) == 0.0


def test_parts_that_ended_or_never_began_are_not_waited_for(reader: Reader) -> None:
    rundir.write_json(str(reader.run_dir / rundir.part_file(0, "end")), {"codes": {}})
    assert reader.looks(30) == 0.0
    other = Silence(str(reader.run_dir), 2, lambda: reader.now_s)
    reader.now_s += 100.0
    assert other.longest_s() == 0.0


def test_a_part_leaves_with_the_process_that_started_it_where_the_engine_says_so(gang: Gang) -> None:
    gang.prepare(site=Site(SITE.addresses, "lo", True, 0.05, ends_with_parent=True))
    rundir.write_json(str(gang.run_dir / rundir.PORT), {"port": 29_000})
    words = " ".join(map(_quoted, _command("part", str(gang.run_dir), "node0")))
    parent = subprocess.Popen(["/bin/sh", "-c", f"{words} & wait"])
    gang.processes.append(parent)
    until(lambda: "ready" in gang.log(0), "its rank")
    parent.kill()
    end = until(lambda: gang.read(rundir.part_file(0, "end")), "the end of the part")
    assert end["codes"] == {"0": 85} and gang.left() == []


def test_a_part_that_is_kept_by_a_process_is_no_child_of_it_and_leaves_when_it_is_gone(gang: Gang) -> None:
    """An engine that kills its process may kill the children of it, too: the part saves its work all the same."""
    gang.prepare()
    keeper = subprocess.Popen(["sleep", "1000"])
    gang.processes.append(keeper)
    for node in NODES:
        assert gang.start("part", node, "--kept-by", str(keeper.pid)).wait(30) == 0, "it leaves the part to itself"
    gang.ready()
    assert {parents()[gang.pid(index)] for index in range(2)}.isdisjoint({os.getpid(), keeper.pid})
    keeper.kill()
    keeper.wait(30)
    until(lambda: all(gang.read(rundir.part_file(index, "end")) for index in range(2)), "the end of both parts")
    assert [(gang.read(rundir.part_file(index, "end")) or {})["codes"] for index in range(2)] == [{"0": 85}, {"1": 85}]
    assert gang.left() == []


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[Driver]:
    driver = Driver(LocalEngine(cgroups=True), tmp_path)
    try:
        yield driver
    finally:
        driver.close()


def test_a_frozen_part_keeps_its_gpus_until_its_ranks_are_gone(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its ranks run on, so nothing is given on before the executor has ended them itself."""
    monkeypatch.setattr("trine.executor.attempt.fence.KILL_S", 1.0)
    handle = driver.launch("j", command=(*TRAINER,), lease_s=1.0, grace_s=0.2, STEPS=100_000)
    driver.progress(handle)
    supervisor = int(json.loads((driver.state / "jobs/j/1/pid.json").read_text())["pid"])
    os.kill(supervisor, signal.SIGSTOP)
    early = driver.end(driver.launch("k", STEPS=1))
    assert isinstance(early, LaunchFailed) and early.passing and "still held by j" in early.reason
    end = driver.exited(handle)
    assert isinstance(end, AttemptExited)
    assert (end.kind, end.reason) == ("lost", "its supervisor did not end it when its lease was over")
    assert driver.engine.leftovers(driver.state) == []
    assert driver.exited(driver.launch("k", epoch=2, STEPS=1)).kind == "done"


@pytest.mark.parametrize(
    ("codes", "rc"), [([85, 143], 85), ([0, 85, 143], 85), ([143, 143], 143), ([85, 137], 137), ([1, 137], 137)]
)
def test_ranks_that_leave_together_have_saved_although_one_heard_of_the_stop_late(codes: list[int], rc: int) -> None:
    """An interpreter that winds down has no handler any more: the TERM of a part that sees the stop late ends it."""
    ends = [{"codes": {str(rank): code}, "asked": "preempt"} for rank, code in enumerate(codes)]
    end = merged({"ranks": [{}] * len(codes)}, ends)
    assert (end["kind"], end["rc"]) == ("preempted", rc)
