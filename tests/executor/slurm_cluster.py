"""A real Slurm on loopback: its own munge, one slurmctld, one slurmd per node, all below one directory and nothing in
/etc. Daemons run in the foreground as children of the test and are ended by process id.

``python -m tests.executor.slurm_cluster 4x2`` keeps one up until it is interrupted, ``... 4x2 -- COMMAND`` for as long
as a command runs."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.executor.cluster_command import keep_up
from tests.executor.driving import DEADLINE_S
from trine.executor.attempt.processes import descendants

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "scontrol")
HOW_TO_GET = "apt-get install --no-install-recommends slurmctld slurmd slurm-client munge"
_PATH = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])


def missing() -> str:
    """Why no Slurm can be started here, empty if it can."""
    absent = [name for name in PROGRAMS if shutil.which(name, path=_PATH) is None]
    if absent:
        return f"no {', '.join(absent)} here; on Debian: {HOW_TO_GET}"
    return "" if os.geteuid() == 0 else "Slurm's daemons are started by root only in these tests"


needs_slurm = pytest.mark.skipif(bool(missing()), reason=missing() or "Slurm is here")


class SlurmCluster:
    """``nodes`` nodes called node0, node1 ... with ``gpus`` GPUs each, in racks of ``nodes_per_rack``.

    ``typed``: one GRES type per GPU (v100_0, v100_1 ...), so that a job can name exact GPUs; otherwise all are
    ``v100``. ``hidden``: a directory that the nodes do not see. Memory and CPUs are numbers that nothing stands
    behind."""

    def __init__(
        self,
        nodes: int = 4,
        gpus: int = 2,
        *,
        typed: bool = True,
        nodes_per_rack: int = 2,
        cpus: int = 64,
        hidden: Path | None = None,
    ) -> None:
        self._hidden = hidden
        self.names = [f"node{i}" for i in range(nodes)]
        self.gpus, self.typed, self._per_rack, self._cpus = gpus, typed, nodes_per_rack, cpus
        # A short path: names of sockets end at 107 characters.
        self.base = Path(tempfile.mkdtemp(prefix="trine-slurm-"))
        self.conf = self.base / "slurm.conf"
        self._ports = free_ports(nodes + 1)
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}

    def start(self) -> None:
        """All daemons; returns when every node is idle."""
        self._write_files()
        self._start_munge()
        self.start_controller()
        for name in self.names:
            self.start_node(name)
        self.wait_for(lambda: set(self.node_states().values()) == {"idle"}, "all nodes idle")

    def stop(self) -> None:
        """End every daemon, with all that they still run, and remove the directory."""
        for name in self.names:
            self.kill_machine(name)
        for name in ("slurmctld", "munged"):
            self._end(name, signal.SIGKILL)
        shutil.rmtree(self.base, ignore_errors=True)

    # -- daemons -----------------------------------------------------------------------------------------------------

    def start_controller(self) -> None:
        self._spawn("slurmctld", "slurmctld", "-D")

    def start_node(self, name: str) -> None:
        (self.base / f"spool-{name}").mkdir(exist_ok=True)
        if self._hidden is None:
            self._spawn(name, "slurmd", "-D", "-N", name)
        else:
            script = 'mount -t tmpfs hidden "$0" && exec "$@"'
            self._spawn(name, "unshare", "--mount", "sh", "-c", script, str(self._hidden), "slurmd", "-D", "-N", name)

    def kill_controller(self, number: int = signal.SIGKILL) -> None:
        self._end("slurmctld", number)

    def restart_controller(self) -> None:
        """Start it again and wait until it answers."""
        self.start_controller()
        self.wait_for(self.answers, "slurmctld to answer")

    def kill_node(self, name: str) -> None:
        """slurmd alone; what it started runs on."""
        self._end(name, signal.SIGKILL)

    def kill_steps(self, name: str, with_tasks: bool = False) -> None:
        """The daemons of the steps of a node, with what runs under them or without."""
        daemons = self.step_daemons(name)
        tasks = [child for daemon in daemons for child in descendants(daemon)] if with_tasks else []
        for pid in [*daemons, *tasks]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def kill_machine(self, name: str) -> None:
        """A node that is gone: slurmd and all that runs under it, without a word."""
        self._end(name, signal.SIGKILL)
        self.kill_steps(name, with_tasks=True)

    def step_daemons(self, name: str) -> list[int]:
        """The slurmstepd of a node: those that listen on a socket in its spool directory."""
        spool = str(self.base / f"spool-{name}")
        lines = [line.split() for line in Path("/proc/net/unix").read_text().splitlines()]
        sockets = {f"socket:[{words[6]}]" for words in lines if words[-1].startswith(spool)}
        return [pid for pid in _processes(b"slurmstepd") if sockets & _open_files(pid)]

    # -- what it says ------------------------------------------------------------------------------------------------

    @property
    def environ(self) -> dict[str, str]:
        """For commands that shall find this cluster and no other."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("SLURM")}
        return {**kept, "PATH": _PATH, "SLURM_CONF": str(self.conf)}

    def run(self, *command: str, check: bool = True) -> str:
        done = subprocess.run(command, env=self.environ, capture_output=True, text=True, timeout=60, check=False)
        assert not check or done.returncode == 0, f"{command}: {done.stderr}"
        return done.stdout.strip()

    def answers(self) -> bool:
        return subprocess.run(["scontrol", "ping"], env=self.environ, capture_output=True, check=False).returncode == 0

    def node_states(self) -> dict[str, str]:
        lines = self.run("sinfo", "-h", "-N", "-o", "%N %T", check=False).splitlines()
        return dict(line.split() for line in lines)

    def jobs(self) -> list[str]:
        """Ids of the jobs that wait or run."""
        return self.run("squeue", "-h", "-o", "%i").split()

    def cancel_all(self) -> None:
        if "slurmctld" in self._daemons and self.answers():
            self.run("scancel", "--state=PENDING,RUNNING,SUSPENDED", "--user=root", check=False)
            with suppress(AssertionError):
                self.wait_for(lambda: not self.jobs(), "no job is left")

    def resume_nodes(self) -> None:
        """All nodes back, whatever a test did to them."""
        for name in self.names:
            if name not in self._daemons:
                self.start_node(name)
        states = self.node_states()
        for name in [name for name, state in states.items() if state.rstrip("*") != "idle"]:
            self.run("scontrol", "update", f"nodename={name}", "state=resume", check=False)
        self.wait_for(lambda: set(self.node_states().values()) == {"idle"}, "all nodes idle again")

    def wait_for(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while not condition():
            assert time.monotonic() < deadline, f"waited in vain for {what}; {self._last_words()}"
            time.sleep(0.05)

    # -- inside ------------------------------------------------------------------------------------------------------

    def _write_files(self) -> None:
        for name in ("state", "log", "munge", "dev"):
            (self.base / name).mkdir()
        self.base.chmod(0o755)
        for index in range(self.gpus):
            # Copies of /dev/null, each with a number of its own: Slurm reads the index of a GPU off a device file.
            os.mknod(self.base / "dev" / f"gpu{index}", stat.S_IFCHR | 0o666, os.makedev(1, 3))
        key = self.base / "munge" / "key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o600)
        (self.base / "gres.conf").write_text(self._gres_conf())
        (self.base / "topology.conf").write_text(self._topology_conf())
        self.conf.write_text(self._slurm_conf())

    def _gres_conf(self) -> str:
        everywhere, device = f"NodeName=node[0-{len(self.names) - 1}] Name=gpu", self.base / "dev" / "gpu"
        if not self.typed and self.gpus:
            return f"{everywhere} Type=v100 File={device}[0-{self.gpus - 1}]\n"
        return "".join(f"{everywhere} Type=v100_{i} File={device}{i}\n" for i in range(self.gpus))

    def _topology_conf(self) -> str:
        racks = [self.names[i : i + self._per_rack] for i in range(0, len(self.names), self._per_rack)]
        lines = [f"SwitchName=rack{i} Nodes={','.join(names)}" for i, names in enumerate(racks)]
        core = "SwitchName=core Switches=" + ",".join(f"rack{i}" for i in range(len(racks)))
        return "\n".join([*lines, core, ""])

    def _slurm_conf(self) -> str:
        host = socket.gethostname().partition(".")[0]
        types = [f"gpu:v100_{i}:1" for i in range(self.gpus)] if self.typed else [f"gpu:v100:{self.gpus}"]
        gres = f"Gres={','.join(types)}" if self.gpus else ""
        shape = f"CPUs={self._cpus} RealMemory=64000 {gres} State=UNKNOWN"
        nodes = [
            f"NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} {shape}"
            for name, port in zip(self.names, self._ports[1:], strict=True)
        ]
        base = self.base
        return "\n".join(
            [
                "ClusterName=loopback",
                f"SlurmctldHost={host}(127.0.0.1)",
                f"SlurmctldPort={self._ports[0]}",
                # Without this the daemons listen on all addresses, whatever NodeAddr says.
                "CommunicationParameters=NoCtldInAddrAny,NoInAddrAny",
                "SlurmUser=root",
                "SlurmdUser=root",
                "AuthType=auth/munge",
                "CredType=cred/munge",
                f"AuthInfo=socket={base}/munge/socket",
                f"StateSaveLocation={base}/state",
                f"SlurmctldPidFile={base}/slurmctld.pid",
                f"SlurmdPidFile={base}/slurmd-%n.pid",
                f"SlurmdSpoolDir={base}/spool-%n",
                f"SlurmctldLogFile={base}/log/slurmctld",
                f"SlurmdLogFile={base}/log/slurmd-%n",
                "ProctrackType=proctrack/linuxproc",
                "TaskPlugin=task/none",
                "SchedulerType=sched/backfill",
                "SelectType=select/cons_tres",
                "SelectTypeParameters=CR_CPU",
                "GresTypes=gpu",
                "MpiDefault=none",
                "ReturnToService=2",
                "KillWait=2",
                "MessageTimeout=5",
                "SlurmctldTimeout=5",
                "SlurmdTimeout=10",
                "InactiveLimit=0",
                "MinJobAge=300",
                "SchedulerParameters=sched_interval=1,bf_interval=1,batch_sched_delay=0,sched_min_interval=0",
                # As many CPUs as a test wants, on a machine that has fewer.
                "SlurmdParameters=config_overrides",
                "TopologyPlugin=topology/tree",
                *nodes,
                "PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=NO",
                "PartitionName=closed Nodes=ALL RootOnly=YES State=UP",
                "",
            ]
        )

    def _start_munge(self) -> None:
        munge = self.base / "munge"
        munge.chmod(0o711)
        names = {"key-file": "key", "socket": "socket", "pid-file": "pid", "log-file": "log", "seed-file": "seed"}
        options = [f"--{option}={munge / name}" for option, name in names.items()]
        self._spawn("munged", "munged", "--foreground", "--force", *options)
        self.wait_for((munge / "socket").exists, "munge")

    def _spawn(self, name: str, *command: str) -> None:
        program = shutil.which(command[0], path=_PATH) or command[0]
        with (self.base / "log" / f"{name}.out").open("ab") as out:
            self._daemons[name] = subprocess.Popen(
                # A test that is killed leaves none of them behind.
                ["setpriv", "--pdeathsig", "KILL", program, *command[1:]],
                env=self.environ,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )

    def _end(self, name: str, number: int) -> None:
        daemon = self._daemons.pop(name, None)
        if daemon is None:
            return
        daemon.send_signal(number)
        try:
            daemon.wait(10)
        except subprocess.TimeoutExpired:
            daemon.kill()
            daemon.wait(10)

    def _last_words(self) -> str:
        said = []
        for name, daemon in self._daemons.items():
            log = self.base / "log" / f"{name}.out"
            lines = log.read_text(errors="replace").splitlines() if log.exists() else []
            said.append(f"{name} ({daemon.poll()}): {' / '.join(lines[-2:])}")
        return "; ".join(said)


@contextmanager
def slurm_cluster(
    nodes: int = 4, gpus: int = 2, *, typed: bool = True, hidden: Path | None = None
) -> Iterator[SlurmCluster]:
    """A cluster for as long as the block lasts; skips the test where there is no Slurm."""
    if why := missing():
        pytest.skip(why)
    cluster = SlurmCluster(nodes, gpus, typed=typed, hidden=hidden)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


def free_ports(count: int) -> list[int]:
    """Ports of loopback that nothing listens on now; all of them are held until the last is found."""
    with_sockets = [socket.socket() for _ in range(count)]
    try:
        for each in with_sockets:
            each.bind(("127.0.0.1", 0))
        return [int(each.getsockname()[1]) for each in with_sockets]
    finally:
        for each in with_sockets:
            each.close()


def _processes(name: bytes) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if path.read_bytes().startswith(name):
                found.append(int(path.parent.name))
    return found


def _open_files(pid: int) -> set[str]:
    """What the descriptors of a process lead to."""
    found = set()
    for link in Path(f"/proc/{pid}/fd").glob("*"):
        with suppress(OSError):
            found.add(str(link.readlink()))
    return found


if __name__ == "__main__":  # NODESxGPUS [untyped] [-- COMMAND...]
    sys.exit(
        keep_up(missing(), lambda n, gpus, words: SlurmCluster(n, gpus, typed="untyped" not in words), ("SLURM_CONF",))
    )
