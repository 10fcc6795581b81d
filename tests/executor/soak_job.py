"""A job of the soak: proves by locks that it is alone on its GPUs, works in steps, saves on SIGTERM and goes on from
there. Arguments: where locks lie, steps, seconds per step. Standard library only."""

from __future__ import annotations

import fcntl
import os
import signal
import sys
import time
from pathlib import Path


def main(locks: Path, steps: int, step_s: float) -> int:
    """85 when told to stop, 0 at the end. A GPU that another process holds is written down for the soak to find."""
    told: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: told.append(number))
    gpu = os.environ["CUDA_VISIBLE_DEVICES"].split(",")[int(os.environ["LOCAL_RANK"])]
    # The lock goes with the process, however it ends.
    held = (locks / f"{os.environ['TRINE_NODE']}-{gpu}").open("a")
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        with (locks / "clashes").open("a") as clashes:
            clashes.write(f"job {os.environ['TRINE_JOB_ID']} attempt {os.environ['TRINE_ATTEMPT']} {held.name}\n")
    save = Path(os.environ["TRINE_CHECKPOINT_DIR"]) / f"step-{os.environ['RANK']}"
    step = int(save.read_text()) if save.exists() else 0
    while step < steps:
        time.sleep(step_s)
        step += 1
        if told:
            aside = save.with_suffix(".tmp")
            aside.write_text(str(step))
            aside.rename(save)
            return 85
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])))
