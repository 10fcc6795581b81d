"""torchrun as the command of a job: as many workers as the job has GPUs, jobs side by side, stop and resume."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

import pytest

from tests.e2e.live import EXAMPLES, daemon, until

TORCHRUN = [sys.executable, "-m", "torch.distributed.run"]
SUM = """\
import json, os, sys
import torch, torch.distributed as dist

dist.init_process_group("gloo")
total = torch.ones(1)
dist.all_reduce(total)
names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "CUDA_VISIBLE_DEVICES")
line = json.dumps({**{name: os.environ[name] for name in names}, "total": total.item()})
open(os.path.join(os.environ["TRINE_CHECKPOINT_DIR"], "rank" + os.environ["RANK"]), "w").write(line)
dist.barrier()
dist.destroy_process_group()
"""

pytestmark = [
    pytest.mark.training,
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="PyTorch is not installed (make training)"),
]


def said(folder: Path) -> list[dict[str, object]]:
    return [json.loads(path.read_text()) for path in sorted(folder.iterdir())]


def test_torchrun_starts_a_worker_per_gpu_in_jobs_side_by_side(tmp_path: Path) -> None:
    script = tmp_path / "total.py"
    script.write_text(SUM)
    one, two = tmp_path / "one", tmp_path / "two"
    with daemon(tmp_path / "state", "--gpus", "2x2", "--event-driven") as site:
        client = site.up()
        base = {"run": [*TORCHRUN, str(script)], "gpus": 2, "env": {"OMP_NUM_THREADS": "1"}}
        specs = [
            {**base, "topology": {"required": "node"}, "checkpoint": {"dir": str(one)}},
            {**base, "topology": {"required": "node"}, "checkpoint": {"dir": str(two)}},
        ]
        ids = client.submit(specs)
        ended = [client.wait(job_id, 180) for job_id in ids]
        assert [job["state"] for job in ended] == ["done", "done"], "".join(client.logs(ids[0]))
        for folder in (one, two):
            found = said(folder)
            assert [worker["RANK"] for worker in found] == ["0", "1"]
            assert {worker["WORLD_SIZE"] for worker in found} == {"2"}
            assert {worker["total"] for worker in found} == {2.0}
            assert {worker["CUDA_VISIBLE_DEVICES"] for worker in found} == {"0,1"}
        [across] = client.submit({**base, "gpus": 4, "nodes": 2, "checkpoint": {"dir": str(tmp_path / "across")}})
        assert client.wait(across, 180)["state"] == "done", "".join(client.logs(across))
        places = [(w["RANK"], w["LOCAL_RANK"], w["GROUP_RANK"], w["total"]) for w in said(tmp_path / "across")]
        assert places == [("0", "0", "0", 4.0), ("1", "1", "0", 4.0), ("2", "0", "1", 4.0), ("3", "1", "1", 4.0)]


def test_a_training_under_torchrun_is_stopped_and_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    run = [*TORCHRUN, str(EXAMPLES / "pytorch_ddp.py"), "--steps", "60", "--width", "16", "--step-s", "0.1"]
    with daemon(tmp_path, "--gpus", "1x2", "--round", "1") as site:
        client = site.up()
        [job_id] = client.submit(
            {"run": run, "gpus": 2, "checkpoint": {"grace_s": 60}, "env": {"OMP_NUM_THREADS": "1"}}
        )
        until(lambda: (client.job(job_id)["progress"] or {"step": 0})["step"] >= 3, "the first steps", 120)
        client.hold(job_id)
        until(lambda: client.job(job_id)["state"] not in ("running", "stopping"), "the stop", 120)
        assert client.job(job_id)["state"] == "held", "".join(client.logs(job_id))
        client.release(job_id)
        ended = client.wait(job_id, 180)
        assert (ended["state"], ended["attempt"]) == ("done", 2), "".join(client.logs(job_id))
        story = [line["sentence"] for line in client.explain(job_id)["story"] if line["what"] == "started"]
        assert "resumes" in story[1]
