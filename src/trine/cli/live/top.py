"""``trine top``: the cluster and its jobs in a terminal, looked at again and again. Leaves the terminal as it was.

``frame`` says what is shown, as lines; everything else here is about the terminal.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from trine.cli.live.verb import State, connected, verb

if TYPE_CHECKING:
    from trine.client import Client, DaemonAnswer, JobAnswer, NodeAnswer
    from trine.client.answers import GpuAnswer

_HELD, _FREE, _OUT, _FLAGGED = "#", ".", "x", "!"
_KEY = f"{_HELD} held  {_FREE} free  {_OUT} out of service  {_FLAGGED} slower or faster than its profile"
_STATES = ("running", "starting", "stopping", "waiting", "held", "set aside")
_MOST_JOBS = 500
"""More than any terminal has lines."""
_BLOCKED = "waits-for-other-jobs"
"""Code of the reason, also of elements of an array that wait for their turn."""
_NODE_PART = 3
"""Nodes take at most one line in so many; the rest is for jobs."""


class Look(NamedTuple):
    """What the daemon said, at one moment."""

    daemon: DaemonAnswer
    nodes: list[NodeAnswer]
    jobs: list[JobAnswer]


@verb
def top(
    every_s: Annotated[float, typer.Option("--every", min=0.1, metavar="S", help="Seconds between two looks.")] = 2.0,
    once: Annotated[bool, typer.Option("--once", help="Look once and print it, as into a file.")] = False,
    state: State = None,
) -> None:
    """Watch GPUs and jobs in the terminal; q or Ctrl-C ends it."""
    from trine.cli.tables import terminal_width

    with connected(state) as client:
        if once or not sys.stdout.isatty():
            look = _look(client)
            typer.echo("\n".join(frame(look, time.time(), terminal_width(), len(look.nodes) * 3 + _MOST_JOBS)))
            return
        with _keys() as pressed:
            _show(client, every_s, pressed)


def _look(client: Client) -> Look:
    return Look(client.daemon(), client.nodes(), client.jobs(limit=_MOST_JOBS))


def _show(client: Client, every_s: float, pressed: _Keys) -> None:
    """Until q is pressed or Ctrl-C raises; the screen that was there before comes back in any case."""
    from rich.live import Live
    from rich.text import Text

    from trine.cli.tables import console
    from trine.client.errors import ConnectionBrokenError, NoAnswerError, NoDaemonError

    output = console()
    last, note = _look(client), ""
    with Live(console=output, screen=True, auto_refresh=False) as screen:
        while True:
            width, height = output.size
            lines = frame(last, time.time(), width, height - bool(note))
            lines = [*([note] if note else []), *lines][:height]
            screen.update(Text("\n".join(lines), no_wrap=True, overflow="crop"), refresh=True)
            if pressed.quits(every_s):
                return
            try:
                last, note = _look(client), ""
            except (NoDaemonError, ConnectionBrokenError, NoAnswerError) as error:
                note = note or f"No answer since {time.strftime('%H:%M:%S')} ({error}); this was last seen."


# -- what is shown ----------------------------------------------------------------------------------------------------


def frame(look: Look, now_s: float, width: int, height: int) -> list[str]:
    """Lines of at most ``width``, ``height`` of them at most: the daemon, its nodes, its jobs."""
    from trine.cli.live.job_text import clean
    from trine.cli.live.queue import job_lines

    head = [*_head(look, now_s), ""]
    nodes = [*_node_lines(look.nodes, width, max(1, height // _NODE_PART)), ""]
    room = height - len(head) - len(nodes)
    others = any(look.daemon["jobs"].get(name) for name in _STATES)
    nothing = "None of your jobs runs or waits." if others else "No job runs or waits."
    jobs = job_lines(look.jobs, now_s, width) if look.jobs else [nothing]
    lines = [*head, *nodes, *_cut(jobs, room, "jobs")]
    return [clean(line)[:width].rstrip() for line in lines][:height]


def _head(look: Look, now_s: float) -> list[str]:
    from trine.cli.live.job_text import duration

    daemon, states = look.daemon, Counter(job["state"] for job in look.jobs) | Counter(look.daemon["jobs"])
    gpus = Counter(mark(node, gpu) for node in look.nodes for gpu in node["gpus"])
    held, out = gpus[_HELD], gpus[_OUT]
    part = f" ({held / (daemon['gpus'] - out):.0%} of those in service)" if daemon["gpus"] > out else ""
    live = [f"{states[name]:,} {name}" for name in _STATES if states[name]]
    blocked = sum(bool(job.get("after")) or job["reason"]["code"] == _BLOCKED for job in look.jobs)
    if blocked and len(look.jobs) < _MOST_JOBS:  # else there may be more
        live.append(f"{blocked:,} of them {'waits' if blocked == 1 else 'wait'} for other jobs")
    return [
        f"trine {daemon['version']}   {daemon['policy']}, {daemon['placement']}   "
        f"up {duration(now_s - daemon['started_s'])}   {time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(now_s))}",
        f"GPUs   {daemon['gpus']:,}: {held:,} held{part}, {daemon['gpus'] - held - out:,} free, {out:,} out of service",
        f"jobs   {', '.join(live) or 'none'}",
        *(f"!      {problem}" for problem in daemon["problems"][:3]),
    ]


def mark(node: NodeAnswer, gpu: GpuAnswer) -> str:
    """One character for one GPU; that it is held goes before everything else."""
    if gpu["job"] is not None:
        return _HELD
    if node["state"] != "up" or gpu.get("drained") or gpu.get("withheld"):
        return _OUT
    return _FLAGGED if gpu["flags"] else _FREE


def _node_lines(nodes: Sequence[NodeAnswer], width: int, most: int) -> list[str]:
    """Nodes side by side, a character per GPU."""
    cells = [f"{node['name']} {''.join(mark(node, gpu) for gpu in node['gpus'])}" for node in nodes]
    longest = max((len(cell) for cell in cells), default=1)
    columns = max(1, (width + 2) // (longest + 2))
    rows = [cells[first : first + columns] for first in range(0, len(cells), columns)]
    return [_KEY, *_cut(["  ".join(cell.ljust(longest) for cell in row) for row in rows], most, "lines of nodes")]


def _cut(lines: list[str], most: int, what: str) -> list[str]:
    if len(lines) <= most:
        return lines
    return [*lines[: max(0, most - 1)], f"... and {len(lines) - max(0, most - 1):,} more {what}"]


# -- the terminal ------------------------------------------------------------------------------------------------------


class _Keys:
    """Keys that are pressed while it looks; none where the input is no terminal."""

    def __init__(self, descriptor: int | None) -> None:
        self._descriptor = descriptor

    def quits(self, within_s: float) -> bool:
        """Wait so long, or until q is pressed."""
        ends_s = time.monotonic() + within_s
        while (left_s := ends_s - time.monotonic()) > 0:
            if self._descriptor is None:
                time.sleep(left_s)
            elif self._pressed(self._descriptor, left_s) in (b"q", b"Q", b""):
                return True
        return False

    def _pressed(self, descriptor: int, within_s: float) -> bytes | None:
        """The next key; empty where the terminal is gone, ``None`` if none is pressed."""
        return os.read(descriptor, 1) if select.select([descriptor], [], [], within_s)[0] else None


@contextmanager
def _keys() -> Iterator[_Keys]:
    """Keys come one by one and are not shown, until the block ends, however it ends."""
    signal.signal(signal.SIGTERM, _interrupted)
    if not sys.stdin.isatty():
        yield _Keys(None)
        return
    import termios
    import tty

    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    try:
        tty.setcbreak(descriptor, termios.TCSANOW)
        yield _Keys(descriptor)
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def _interrupted(*_: object) -> None:
    """SIGTERM ends it as Ctrl-C does: a process that is killed at once would leave the screen as it is."""
    raise KeyboardInterrupt
