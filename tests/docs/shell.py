"""Types lines of a page into a shell: in a directory of its own, with a daemon where the page starts one."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.e2e.live import end_jobs, until

_DROPPED = ("TRINE_", "XDG_", "CUDA_", "SLURM_")
_PATIENCE_S = 90.0


@dataclass(frozen=True)
class Said:
    """How a line ended and what it printed."""

    code: int
    out: str
    err: str


@dataclass
class Shell:
    """A home directory, exported variables, and at most one daemon in the background."""

    folder: Path
    places: Mapping[str, str] = field(default_factory=dict)
    """Absolute paths that the page names, and where they are in the folder."""
    environment: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._exports: list[str] = []
        self._daemon: subprocess.Popen[bytes] | None = None
        self._last_up = ""
        self._log = self.folder / "daemon.log"
        self.state = self.folder / "state/trine"

    @property
    def variables(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(_DROPPED)}
        own = {"HOME": str(self.folder), "XDG_STATE_HOME": str(self.folder / "state"), "COLUMNS": "120"}
        programs = [str(self.folder / "bin"), str(Path(sys.executable).parent), kept.get("PATH", "")]
        return {**kept, **own, "PATH": os.pathsep.join(programs), **self.environment}

    def type(self, line: str, interrupt_at: str = "") -> Said:
        """One line as somebody would type it; Ctrl-C as soon as it has printed ``interrupt_at``."""
        line = self._moved(line)
        words = line.split()
        if words[0] == "export":
            self._exports.append(line)
        elif words[0] == "systemctl" and words[1] in ("stop", "start"):
            return self._service(words[1])
        elif re.match(r"(\w+=\S+ )*trine up\b", line) and "--dry-run" not in line:
            return self.up(line)
        process = self._begin(line)
        if interrupt_at:
            self._interrupt(process, interrupt_at)
        out, err = process.communicate(timeout=_PATIENCE_S)
        return Said(process.returncode, out.decode(), err.decode())

    def up(self, line: str) -> Said:
        """The daemon of this line, in the place of one that still runs."""
        self.down()
        found = re.search(r"--state[ =](\S+)", line)
        self.state = Path(found.group(1)) if found else self.folder / "state/trine"
        # Its log goes to a file: nobody would read a pipe.
        self._last_up, self._daemon = line, self._begin(f"exec 2>{self._log}\n{line}")
        until(self._answers, f"{line!r} to come up")
        return Said(0, "", "")

    def down(self) -> int:
        """Ctrl-C in the daemon's terminal; jobs go on."""
        if self._daemon is None:
            return 0
        os.killpg(self._daemon.pid, signal.SIGINT)
        self._daemon.communicate(timeout=30)
        code, self._daemon = self._daemon.returncode, None
        return code

    def _service(self, verb: str) -> Said:
        return Said(self.down(), "", "") if verb == "stop" else self.up(self._last_up)

    def _answers(self) -> bool:
        assert self._daemon is not None
        if self._daemon.poll() is not None:
            raise AssertionError(f"the daemon ended: {self._log.read_text()}")
        return (self.state / "api.json").exists()

    def _moved(self, line: str) -> str:
        for path, place in self.places.items():
            line = line.replace(path, str(self.folder / place))
        return line

    def _begin(self, line: str) -> subprocess.Popen[bytes]:
        script = "\n".join([*self._exports, line])
        return subprocess.Popen(
            ["bash", "-c", script],
            cwd=self.folder,
            env=self.variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )

    def _interrupt(self, process: subprocess.Popen[bytes], at: str) -> None:
        assert process.stdout is not None
        os.set_blocking(process.stdout.fileno(), False)
        seen, deadline = b"", time.monotonic() + _PATIENCE_S
        while not re.search(at, seen.decode(errors="replace")):
            assert time.monotonic() < deadline, f"{at!r} is not in {seen!r}"
            assert process.poll() is None, f"it ended with {process.returncode}, having printed {seen!r}"
            seen += process.stdout.read() or b""
            time.sleep(0.02)
        os.set_blocking(process.stdout.fileno(), True)
        os.killpg(process.pid, signal.SIGINT)


@contextmanager
def shell(
    folder: Path, places: Mapping[str, str] | None = None, environment: Mapping[str, str] | None = None
) -> Iterator[Shell]:
    """A shell, of which nothing runs on afterwards."""
    found = Shell(folder, places or {}, environment or {})
    try:
        yield found
    finally:
        found.down()
        for state in folder.glob("**/daemon.lock"):
            end_jobs(state.parent)
