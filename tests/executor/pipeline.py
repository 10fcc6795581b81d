"""A job, an array after it, and a job after all of that, on whatever engine a daemon runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from trine.client import Client

_PATIENCE_S = 120.0


def check_pipeline(client: Client, home: Path) -> None:
    """Submit it; every element knows its number, and none starts before what it waits for has ended."""

    def spec(name: str, script: str, **more: Any) -> dict[str, Any]:
        return {"name": name, "run": ["/bin/sh", "-c", script], "workdir": str(home), "gpus": 1, **more}

    ids = client.submit(
        [
            spec("prepare", "echo prepared > data"),
            spec("train", "cat data; echo $TRINE_ARRAY_INDEX of $TRINE_ARRAY_COUNT", after="prepare", array="0-2"),
            spec("report", "echo all ended", after="train", gpus=2),
        ]
    )
    assert len(ids) == 5
    jobs = [client.wait(job_id, _PATIENCE_S) for job_id in ids]
    assert [job["state"] for job in jobs] == ["done"] * 5
    logs = [b"".join(client.log_bytes(job_id)).decode() for job_id in ids]
    assert logs[1:4] == [f"prepared\n{index} of 3\n" for index in range(3)]
    times = [((job["started_s"] or 0.0), (job["finished_s"] or 0.0)) for job in jobs]
    assert min(start_s for start_s, _ in times[1:4]) >= times[0][1]
    assert times[4][0] >= max(end_s for _, end_s in times[1:4])
