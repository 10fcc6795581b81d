"""The command of test clusters: ``NODESxGPUS [WORDS] [-- COMMAND...]`` keeps one up while the command runs, or until
interrupted. Which cluster, and what of it a shell must know, its own module says."""

from __future__ import annotations

import signal
import string
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Protocol


class Cluster(Protocol):
    """What is started and stopped."""

    def start(self) -> None: ...

    def stop(self) -> None: ...

    @property
    def environ(self) -> dict[str, str]:
        """For commands that shall find this cluster and no other."""


def keep_up(missing: str, make: Callable[[int, int, Sequence[str]], Cluster], shown: Sequence[str]) -> int:
    """``make`` gets nodes, GPUs and the other words; ``shown`` are the variables that a shell is told of. They, and all
    others of the cluster, may stand in the command as $NAME. The exit status is that of the command."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if missing:
        print(missing, file=sys.stderr)
        return 2
    words = sys.argv[1:]
    at = words.index("--") if "--" in words else len(words)
    nodes, _, gpus = words[0].partition("x")
    cluster = make(int(nodes), int(gpus), words[1:at])
    try:
        cluster.start()
        if command := words[at + 1 :]:
            typed = [string.Template(word).safe_substitute(cluster.environ) for word in command]
            return subprocess.run(typed, env=cluster.environ, check=False).returncode
        for name in shown:
            print(f"export {name}={cluster.environ[name]}", flush=True)
        with suppress(KeyboardInterrupt):
            signal.pause()
    finally:
        cluster.stop()
    return 0
