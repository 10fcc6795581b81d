"""A training job that costs nothing: steps that sleep, a checkpoint by write and rename, SIGTERM. No packages needed.

Ranks go in step: after each one they meet at MASTER_PORT and agree on whether to stop. Variables: STEPS, STEP_S,
IGNORE_TERM=1 (stay), SAVE=0 (no handler), DAEMON=1 (leave a detached child), FAIL_AT (step), FAIL_RANK."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import time
from pathlib import Path

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
STEPS, STEP_S = int(os.environ.get("STEPS", "5")), float(os.environ.get("STEP_S", "0.01"))
CHECKPOINTED = 85
wishes: list[int] = []


def told(name: str) -> bool:
    return os.environ.get(name) == "1"


def tell(**line: object) -> None:
    print(json.dumps({"rank": RANK, **line}), flush=True)


def write(path: Path, value: dict[str, object]) -> None:
    aside = path.with_suffix(".tmp")
    aside.write_text(json.dumps(value))
    aside.rename(path)


def detach() -> None:
    """A grandchild in a session of its own that hears no TERM and forgets its variables: well hidden."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            os.execve("/bin/sleep", ["sleep", os.environ.get("DAEMON_S", "1000")], {})
        os._exit(0)
    os.wait()


class Peers:
    """The other ranks. Rank 0 listens, the others call; one byte each way per step."""

    def __init__(self) -> None:
        address = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
        self.links = [] if WORLD == 1 else [*self._accept(address)] if RANK == 0 else [self._call(address)]

    def _accept(self, address: tuple[str, int]) -> list[socket.socket]:
        with socket.create_server(address) as server:
            return [server.accept()[0] for _ in range(WORLD - 1)]

    def _call(self, address: tuple[str, int]) -> socket.socket:
        deadline = time.monotonic() + 60  # the first rank may be slow to come up
        while time.monotonic() < deadline:
            try:
                return socket.create_connection(address)
            except ConnectionRefusedError:
                time.sleep(0.01)
        raise TimeoutError(address)

    def any(self, mine: bool) -> bool:
        """Whether any rank says yes."""
        word = b"1" if mine else b"0"
        if RANK:
            self.links[0].sendall(word)
            return self._hear(self.links[0]) == b"1"
        heard = [word, *(self._hear(link) for link in self.links)]
        for link in self.links:
            link.sendall(max(heard))
        return max(heard) == b"1"

    def _hear(self, link: socket.socket) -> bytes:
        word = link.recv(1)
        if not word:
            raise ConnectionError("a rank has gone")
        return word


def train(first: int, peers: Peers, checkpoint: Path) -> int:
    for step in range(first + 1, STEPS + 1):
        time.sleep(STEP_S)
        if os.environ.get("FAIL_AT") == str(step) and int(os.environ.get("FAIL_RANK", "0")) == RANK:
            os._exit(7)  # at once: an interpreter that winds down drops its peers first, and they fail before it does
        progress: dict[str, object] = {
            "t": time.time(),
            "step": step,
            "total": STEPS,
            "steps_per_s": 1 / STEP_S,
            "checkpoint_step": first,
        }
        write(Path(os.environ["TRINE_PROGRESS_DIR"]) / f"progress-{RANK}.json", progress)
        if peers.any(bool(wishes)):
            if RANK == 0:
                write(checkpoint, {"step": step})
            tell(stopped=step)
            return CHECKPOINTED
    tell(done=STEPS)
    return 0


def main() -> int:
    if told("IGNORE_TERM"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    elif os.environ.get("SAVE") != "0":
        signal.signal(signal.SIGTERM, lambda number, frame: wishes.append(number))
    if told("DAEMON"):
        detach()
    checkpoint = Path(os.environ["TRINE_CHECKPOINT_DIR"] or ".") / "checkpoint.json"
    first = json.loads(checkpoint.read_text())["step"] if checkpoint.exists() else 0
    tell(pid=os.getpid(), start=first, attempt=os.environ["TRINE_ATTEMPT"], gpus=os.environ["CUDA_VISIBLE_DEVICES"])
    return train(first, Peers(), checkpoint)


if __name__ == "__main__":
    sys.exit(main())
