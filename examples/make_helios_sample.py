"""Writes helios_sample.csv, the trace of the notebooks: jobs drawn from the published figures of Helios, in its format.

No job of the real log is in it: https://github.com/S-Lab-System-Group/HeliosData has that one, in the same columns.
"""

from __future__ import annotations

import csv
import random
from datetime import datetime, timedelta
from pathlib import Path

from trine.trace.generate import generate

COLUMNS = (
    *("job_id", "user", "vc", "gpu_num", "cpu_num", "node_num", "state"),
    *("submit_time", "start_time", "end_time", "duration", "queue"),
)
BEGIN = datetime(2020, 6, 1)
USERS = 14
"""The first submits most, as in every log: user k a k-th as much."""


def main() -> None:
    rng = random.Random(20)
    weights = [1 / k for k in range(1, USERS + 1)]
    with Path(__file__).with_name("helios_sample.csv").open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        for job in generate("helios", jobs=600, seed=20, gpus=64, load=0.85, max_gpus=16):
            user = rng.choices(range(USERS), weights)[0]
            run_s = round(job.ideal_s or 0.0)
            at = BEGIN + timedelta(seconds=round(job.submit_s))
            times = (at, at, at + timedelta(seconds=run_s))
            words = (t.isoformat(" ") for t in times)
            writer.writerow(
                (job.id, f"u{user:02}", f"vc{user % 3}", job.gpus, 4 * job.gpus, 1, "COMPLETED", *words, run_s, 0)
            )


if __name__ == "__main__":
    main()
