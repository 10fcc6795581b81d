"""What the jobs of the soak test run: ``soak_job.py LEDGER KIND OPTIONS``, one kind per way to behave or misbehave.

Every rank holds a lock on each of its GPUs, and one on its place in the job, for as long as any process of it lives;
children inherit them. Whoever finds one taken says so in the ledger, a file of the job's own. Standard library only."""

from __future__ import annotations

import contextlib
import fcntl
import json
import mmap
import os
import shutil
import signal
import struct
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

RANK = int(os.environ.get("RANK", "0"))
_PATIENCE_S = 0.25
"""A process that was killed lets go of its locks a moment after it has stopped running."""

Options = dict[str, Any]
Note = Callable[..., None]


def note_in(ledger: str) -> Note:
    """Append lines to the job's ledger, each as a whole."""
    file = os.open(ledger, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    attempt = int(os.environ.get("TRINE_ATTEMPT", "0"))

    def note(event: str, **more: object) -> None:
        line = {"ev": event, "t": time.monotonic(), "attempt": attempt, "rank": RANK, "pid": os.getpid(), **more}
        os.write(file, json.dumps(line).encode() + b"\n")

    return note


def take(path: str, note: Note) -> None:
    """Hold a lock until the last process that has inherited it is gone."""
    file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    os.set_inheritable(file, True)
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() < deadline:
                time.sleep(0.01)
                continue
            note("taken", what=Path(path).name, by=os.pread(file, 200, 0).decode(errors="replace"))
            return
        os.ftruncate(file, 0)
        os.pwrite(file, f"job {os.environ['TRINE_JOB_ID']} attempt {os.environ['TRINE_ATTEMPT']}".encode(), 0)
        return


def my_gpus(per_gpu: bool) -> list[str]:
    gpus = os.environ["CUDA_VISIBLE_DEVICES"].split(",")
    return [gpus[int(os.environ["LOCAL_RANK"])]] if per_gpu else gpus


def shift_clock(path: str) -> None:
    """Have this process see the wall clock that the daemon sees."""
    with Path(path).open("rb") as file:
        offset = mmap.mmap(file.fileno(), 8, access=mmap.ACCESS_READ)
    real = time.time
    time.time = lambda: real() + struct.unpack("d", offset[:8])[0]


def work(seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > 0:
        time.sleep(min(left, 0.05))


def plain(note: Note, options: Options) -> int:
    work(options["seconds"])
    if options["rc"]:
        note("failing")
    return int(options["rc"])


def crash(note: Note, options: Options) -> int:
    work(options["seconds"])
    note("failing")
    os.kill(os.getpid(), options["signal"])
    work(1000)
    return 0


def sometimes(note: Note, options: Options) -> int:
    """Ends with ``rc`` the first ``times`` times."""
    work(options["seconds"])
    before = Path(options["ledger"]).read_bytes().count(b'"failing"')
    if before < options["times"]:
        note("failing")
        return int(options["rc"])
    return 0


def trained(note: Note, options: Options) -> int:
    """A training with the SDK; rank 0 says what it restored, ran and saved."""
    sys.path.insert(0, options["src"])
    from trine import sdk

    tell: Note = note if RANK == 0 else lambda *_, **__: None
    found = sdk.restore()
    tell("resume", step=found.step if found else 0)

    def save(done: int) -> None:
        tell("saving", step=done)
        while True:
            try:
                sdk.save_json(done, {"done": done})
                break
            except OSError as error:  # the disk of the state directory may be full for a while
                tell("unsaved", step=done, why=str(error))
                time.sleep(0.1)
        tell("saved", step=done)

    for step, _ in sdk.steps(options["steps"], save=save, save_every=options["every"]):
        time.sleep(options["step_s"])
        tell("step", step=step)
    return 0


def talk(_: Note, options: Options) -> int:
    """More output than anybody reads; a disk that is full does not matter to it."""
    line = b"x" * 65_535 + b"\n"
    for _number in range(options["lines"]):
        with contextlib.suppress(OSError):
            os.write(1, line)
    return 0


def family(_: Note, options: Options) -> int:
    """Leaves children behind that hear no TERM, some in a session of their own and without a variable of ours."""
    for number in range(options["children"]):
        if os.fork() == 0:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            if number % 2:
                os.setsid()
                if os.fork():
                    os._exit(0)
                os.execve("/bin/sleep", ["sleep", "1000"], {})
            work(1000)
            os._exit(0)
    work(options["seconds"])
    return 0


def deaf(_: Note, options: Options) -> int:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    work(options["seconds"])
    return 0


_GARBAGE = (
    b"",
    b"\0" * 5000,
    b"[" * 100_000,
    b'{"step": 1e400, "t": 1}',
    b'{"step": NaN, "t": NaN, "steps_per_s": Infinity}',
    b'{"step": 999999999999999, "t": 1e14, "steps_per_s": 1e12, "checkpoint_step": 999999999999999}',
    b'{"step": 5, "total": 0, "t": 1, "steps_per_s": -3}',
    b'{"step": -1, "t": "now"}',
    b'{"step": 3, "total": 1000000000000000, "t": 1, "steps_per_s": 1e-9}',
    b'{"step": 1, "t": 1, "steps_per_s": ' + b"9" * 4000 + b"}",
    b'\xff\xfe{"step": 1}',
    b'{"step": 7, "t": 1, "steps_per_s": 1e12, "total": 7, "checkpoint_step": 7}',
)


def garbage(_: Note, options: Options) -> int:
    """Nonsense, and numbers at the bounds, where the progress is expected."""
    path = Path(os.environ["TRINE_PROGRESS_DIR"]) / "progress-0.json"
    deadline = time.monotonic() + options["seconds"]
    number = options["first"]
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)
            if number % 7 == 5:
                os.mkfifo(path)
            elif number % 7 == 6:
                path.symlink_to("/dev/zero")
            else:
                path.write_bytes(_GARBAGE[number % len(_GARBAGE)])
        number += 1
        time.sleep(0.2)
    return 0


def vandal(_: Note, options: Options) -> int:
    """Its directory for progress is gone, then is a file, a link, a pipe, a thousand levels deep; or stays so."""
    path = Path(os.environ["TRINE_PROGRESS_DIR"])
    makers: list[Callable[[], object]] = [
        lambda: None,
        path.touch,
        lambda: path.symlink_to("/"),
        lambda: os.mkfifo(path),
        lambda: _deep(path),
    ]
    for make in makers[options["first"] :]:
        with contextlib.suppress(OSError):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            path.unlink(missing_ok=True)
            make()
        work(options["seconds"] / 5)
        if options["stays"]:
            break
    return 0


def _deep(path: Path) -> None:
    path.mkdir()
    os.chdir(path)
    for _ in range(1_200):
        Path("d").mkdir()
        os.chdir("d")


def hoard(_: Note, options: Options) -> int:
    """Takes room in its working directory, and gives it back."""
    path = Path("hoard")
    with contextlib.suppress(OSError), path.open("wb") as file:
        for _number in range(options["megabytes"]):
            file.write(b"x" * (1 << 20))
    work(options["seconds"])
    with contextlib.suppress(OSError):
        path.unlink()
    return 0


KINDS: dict[str, Callable[[Note, Options], int]] = {
    "plain": plain,
    "crash": crash,
    "sometimes": sometimes,
    "trained": trained,
    "talk": talk,
    "family": family,
    "deaf": deaf,
    "garbage": garbage,
    "vandal": vandal,
    "hoard": hoard,
}


def main(ledger: str, kind: str, options: Options) -> int:
    note = note_in(ledger)
    gpus = my_gpus(bool(options.get("per_gpu")))
    node = os.environ["TRINE_NODE"]
    for gpu in gpus:
        take(f"{options['locks']}/{node}-{gpu}", note)
    take(f"{options['locks']}/{Path(ledger).stem}-rank{RANK}", note)
    note("start", job=os.environ["TRINE_JOB_ID"], node=node, gpus=gpus)
    if options.get("clock"):
        shift_clock(options["clock"])
    code = 1
    try:
        code = KINDS[kind](note, {**options, "ledger": ledger})
    except SystemExit as left:
        code = int(left.code or 0)
    except BaseException as error:
        note("error", what=repr(error))
        raise
    finally:
        note("end", rc=code)
    return code


if __name__ == "__main__":
    result = main(sys.argv[1], sys.argv[2], json.loads(sys.argv[3]))
    with contextlib.suppress(OSError):
        sys.stdout.flush()
    os._exit(result)
