"""Start a scheduler with virtual GPUs (or the real ones), run the example workload, and tell what was decided and why.

``make run`` calls this. ``--keep`` leaves the scheduler up afterwards, until Ctrl-C.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from trine.client import Client
from trine.executor.local.inventory import discover
from trine.inputs.job_file import read_job_file

HERE = Path(__file__).resolve().parent
PATIENCE_S = 300.0


def main() -> int:
    """Run the workload; 0 if every job ended well, one was preempted and resumed, and one gang ran."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--state", type=Path, default=Path("runs/live"), help="state directory of the scheduler")
    parser.add_argument("--keep", action="store_true", help="stay up afterwards")
    parser.add_argument("--files", type=Path, default=HERE / "workload", help="directory of job files")
    parser.add_argument(
        "--engine", default="local", help="what runs the jobs: local, or a cluster that is there, such as slurm"
    )
    parser.add_argument(
        "--relay",
        action="store_true",
        help="every job is submitted when the one before it runs, and the first is to go on on other nodes",
    )
    parser.add_argument("--up", default="", help="more options of trine up, in one word")
    asked = parser.parse_args()
    options = ["--round", "3", "--policy", "trine", "--placement", "trine", "--set", "restore_s=2", "--quiet"]
    options += ["--engine", asked.engine, *shlex.split(asked.up)]
    gpus = "the cluster's"
    if asked.engine == "local":
        real = bool(discover())
        options += [] if real else ["--gpus", "2x2"]
        gpus = "real" if real else "four virtual"
    say(f"Starting `trine up {' '.join(options)}`: {gpus} GPUs.")
    daemon = start(asked.state, options)
    try:
        client = Client(state=asked.state)
        ids = submit(client, sorted(asked.files.glob("*.yaml"))[: 1 if asked.relay else None])
        first = nodes_of(client.job(ids[0]))
        if asked.relay:
            ids += submit_in_turn(client, sorted(asked.files.glob("*.yaml"))[1:])
        last = follow(client, ids)[ids[0]]
        ok = report(client, ids) and (not asked.relay or report_places(first, last))
        if asked.keep:
            say(f"Staying up; in another terminal: trine queue --state {asked.state} (Ctrl-C ends it)")
            daemon.wait()
    except KeyboardInterrupt:
        return 130
    finally:
        daemon.send_signal(signal.SIGTERM)
        daemon.wait(30)
    return 0 if ok else 1


def start(state: Path, options: Sequence[str]) -> subprocess.Popen[bytes]:
    """A daemon that answers; jobs find this Python first on their path."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    command = [sys.executable, "-m", "trine", "up", "--state", str(state), *options]
    daemon = subprocess.Popen(command, env={**os.environ, "PATH": path})
    deadline = time.monotonic() + 60
    while not answers(state, daemon.pid):
        if daemon.poll() is not None or time.monotonic() > deadline:
            raise SystemExit("the scheduler did not come up; its words are above")
        time.sleep(0.05)
    return daemon


def answers(state: Path, pid: int) -> bool:
    """The file is there and written by this very daemon: an older one may have left its own."""
    try:
        return bool(json.loads((state / "api.json").read_text())["pid"] == pid)
    except (OSError, ValueError, KeyError):
        return False


def submit(client: Client, files: Sequence[Path]) -> list[str]:
    """The first job gets a moment alone, so that there is something to preempt."""
    ids: list[str] = []
    for number, path in enumerate(files):
        specs = [spec.model_dump(mode="json", by_alias=True, exclude_defaults=True) for spec in read_job_file(path)]
        ids += client.submit(specs)
        say(f"submitted {path.name} as job {ids[-1]}")
        if number == 0:
            wait_for_progress(client, ids[0])
    return ids


def submit_in_turn(client: Client, files: Sequence[Path]) -> list[str]:
    """Each comes when the one before it runs."""
    return [job_id for path in files for job_id in submit(client, [path])]


def wait_for_progress(client: Client, job_id: str) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        job = client.job(job_id)
        progress = job["progress"]
        if job["state"] != "waiting" and progress is not None and progress["step"] > 0:
            return
        time.sleep(0.1)


def follow(client: Client, ids: Sequence[str]) -> dict[str, str]:
    """Print what happens as it happens; on which nodes every job was last."""
    told: dict[str, int] = {}
    places: dict[str, str] = dict.fromkeys(ids, "")
    deadline = time.monotonic() + PATIENCE_S
    open_jobs = set(ids)
    while open_jobs and time.monotonic() < deadline:
        for job_id in ids:
            if job_id in open_jobs:
                explained = client.explain(job_id)
                job = explained["job"]
                places[job_id] = nodes_of(job) or places[job_id]
                tell_news(explained, told)
                if job["state"] in ("done", "failed", "cancelled"):
                    open_jobs.discard(job_id)
        time.sleep(0.2)
    return places


def nodes_of(job: Any) -> str:
    return ", ".join(part["node"] for part in job["placement"] or ())


def tell_news(explained: Any, told: dict[str, int]) -> None:
    job, story = explained["job"], explained["story"]
    for line in story[told.get(job["id"], 0) :]:
        if line["what"] != "submitted":
            at = time.strftime("%H:%M:%S", time.localtime(line["at_s"]))
            where = nodes_of(job) if line["what"] == "running" else ""
            sentence = line["sentence"] or (where and f"on {where}.")
            say(f"{at}  job {job['id']:>2} {job['name']:<9} {line['what']:<13} {sentence}".rstrip())
    told[job["id"]] = len(story)


def report(client: Client, ids: Sequence[str]) -> bool:
    """A table of all jobs, and whether the run showed what it should."""
    jobs = [client.job(job_id) for job_id in ids]
    say("\njob  name       gpus  state      starts  preempted  moved  seconds")
    for job in jobs:
        seconds = (job["finished_s"] or 0) - job["submitted_s"]
        say(
            f"{job['id']:>3}  {job['name']:<9}  {job['gpus']:>4}  {job['state']:<9}  {job['attempt']:>6}  "
            f"{job['preemptions']:>9}  {job['migrations']:>5}  {seconds:>7.1f}"
        )
    done = all(job["state"] == "done" for job in jobs)
    resumed = [job for job in jobs if job["attempt"] > 1 and job["state"] == "done"]
    say(
        f"\n{sum(job['state'] == 'done' for job in jobs)} of {len(jobs)} jobs ended well; "
        f"stopped and resumed from a checkpoint: {', '.join(job['name'] for job in resumed) or 'none'}."
    )
    return done and bool(resumed)


def report_places(first: str, last: str) -> bool:
    """Where the first job ran, and whether it went on elsewhere."""
    say(f"The first job began on {first} and went on on {last}.")
    return first != last


def say(sentence: str) -> None:
    print(sentence, flush=True)


if __name__ == "__main__":
    sys.exit(main())
