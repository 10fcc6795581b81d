"""Small files in the place of those that pages take for granted: a trace, measurements, a training script."""

from __future__ import annotations

import csv
import gzip
import json
import random
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from tests.cli.live.command import trine
from tests.docs.pages import ROOT, blocks
from trine.trace import write_trace
from trine.trace.generate import generate

Maker = Callable[[Path], None]

_TRAIN = """\
import sys, time
print("step_time=0.1", flush=True)
time.sleep(300 if "--epochs" in sys.argv else 0)
"""
_POD = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time"


def trace(path: Path) -> None:
    write_trace(generate("philly", jobs=30, seed=1, gpus=64, load=0.9), path)


def pods(path: Path) -> None:
    rows = [f"pod-{i},8000,1024,{i % 3},1000,,LS,Succeeded,{i},{100 + i},{10 + i}" for i in range(9)]
    path.write_bytes(gzip.compress("\n".join([_POD, *rows, ""]).encode()))


def train(path: Path) -> None:
    """A training that takes minutes if it is told the epochs, and no time at all otherwise."""
    path.write_text(_TRAIN)


def launcher(path: Path) -> None:
    """torchrun, as far as trine can see."""
    path.parent.mkdir(exist_ok=True)
    path.write_text('#!/bin/sh\nexec python "$@"\n')
    path.chmod(0o755)


def records(path: Path) -> None:
    """Three runs on every GPU, one GPU of eight a fifth slower."""
    draw = random.Random(path.name)
    lines = ["gpu,node,run,perf_s,class"]
    for gpu in range(64):
        home = f"node{gpu // 4}"
        for run in range(3):
            speed = (1.2 if gpu % 8 == 3 else 1.0) * draw.uniform(0.99, 1.01)
            lines.append(f"{home}-gpu{gpu % 4},{home},{run},{speed:.4f},A")
    data = "\n".join([*lines, ""]).encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)


def profile(path: Path) -> None:
    """Slowdowns of 64 GPUs that are known by number, so that they fit any cluster of 64 GPUs."""
    names = [str(gpu) for gpu in range(64)]
    lines = ["gpu,perf_s", *(f"{name},{1.0 + (int(name) % 8) / 50}" for name in names for _ in range(3))]
    source = path.with_suffix(".source.csv")
    source.write_text("\n".join([*lines, ""]))
    done = trine("profile", "build", "--class", f"A={source}", "--out", path)
    assert done.code == 0, done.err
    source.unlink()


def slowdowns(path: Path) -> None:
    """The table of 64 GPUs in the published form."""
    rows = [f"{gpu},{gpu // 4},{1 + gpu % 8 / 50},1.0,1.0,1.0" for gpu in range(64)]
    header = "GPU_ID,Node_ID,PerfVar_classA,PerfVar_classB,PerfVar_classC,PerfVar_classD"
    path.write_text("\n".join([header, *rows, ""]))


def pal_jobs(path: Path) -> None:
    rows = [f"{i},{1 + i % 4},{60 * i},{500 + 10 * i},resnet50" for i in range(12)]
    path.write_text("\n".join(["job_id,num_gpus,submit_time,duration,model", *rows, ""]))


def throughputs(path: Path) -> None:
    """The shipped rates of single jobs in the form of Gavel's file, every pair at 0.6 of both."""
    with (ROOT / "src/trine/inputs/tables/gavel-simulation.csv").open() as stream:
        rows = list(csv.DictReader(line for line in stream if not line.startswith("#")))
    alone = {(row["gpu_type"], row["model"]): float(row["steps_per_s"]) for row in rows if row["gpus"] == "1"}
    table: dict[str, dict[str, dict[str, object]]] = {}
    for (kind, model), rate in alone.items():
        others = {other: second for (where, other), second in alone.items() if where == kind}
        pairs: dict[str, object] = {
            f"('{other}', 1)": [0.6 * rate, 0.6 * second] if rate and second else [0.0, 0.0]
            for other, second in others.items()
        }
        table.setdefault(kind, {})[f"('{model}', 1)"] = {"null": rate, **pairs}
    path.write_text(json.dumps(table))


def problem(path: Path) -> None:
    [text] = blocks(ROOT / "docs/allocate.md", "json")
    path.write_text(text)


def share_policy(path: Path) -> None:
    [text] = blocks(ROOT / "docs/allocate.md", "python")
    path.write_text(text)


def nodes(path: Path) -> None:
    rows = [f"n{i},64000,262144,{i % 3},V100" for i in range(6)]
    path.write_bytes(gzip.compress("\n".join(["sn,cpu_milli,memory_mib,gpu,model", *rows, ""]).encode()))


def job(path: Path) -> None:
    """The job file of the page, with its checkpoints below the folder."""
    text = next(text for text in blocks(ROOT / "docs/live.md", "yaml") if text.startswith("# job.yaml"))
    path.write_text(text.replace("/data/", f"{path.parent}/"))


def features(path: Path) -> None:
    """One row, as ``trine profile app`` writes it."""
    path.write_text(json.dumps({"name": "mine", "compute_util": 0.9, "memory_util": 0.3}))


def world(path: Path) -> None:
    """Eight GPUs of one type and a dozen jobs in the three files of a world."""
    path.mkdir()
    inside = {"nic_bytes_per_s": 1e9, "uplink_bytes_per_s": 2e9, "intra_node_bytes_per_s": {"v100": 2e10}}
    shape = {"gpus_per_node": 4, "nodes_per_rack": 2, "round_s": 360, "restart_s": 30}
    (path / "cluster.json").write_text(json.dumps(inside | shape))
    gpus = [f"{gpu},{gpu // 4},0,v100,{1 + gpu / 50}" for gpu in range(8)]
    (path / "gpus.csv").write_text("\n".join(["gpu,node,rack,type,slowdown_A", *gpus, ""]))
    columns = "job_id,submit_s,gpus,work_s_on_v100,class,model,speed_v100,compute_s_per_iteration_v100,gradient_bytes"
    jobs = [f"{i},{60 * i},{1 + i % 4},{600 + 90 * i},A,m,1,0.1,1e8,2" for i in range(12)]
    (path / "jobs.csv").write_text("\n".join([f"{columns},overlap_gamma", *jobs, ""]))


def command(path: Path) -> None:
    """``trine`` of the Python that runs the tests."""
    path.parent.mkdir(exist_ok=True)
    path.write_text(f'#!/bin/sh\nexec {sys.executable} -m trine "$@"\n')
    path.chmod(0o755)


def _example(path: Path) -> None:
    """A file or folder of the repository, under the name that it has there."""
    source = ROOT / "examples" / path.name
    if source.is_dir():
        shutil.copytree(source, path)
    else:
        path.parent.mkdir(exist_ok=True)
        shutil.copy(source, path)


def _text(text: str) -> Maker:
    def maker(path: Path) -> None:
        path.write_text(text)

    return maker


MAKERS: dict[str, Maker] = {
    "trace.csv": trace,
    "openb_pod_list_default.csv.gz": pods,
    "log.csv": _text("queued,run_min,n\n2024-05-01T08:00,30,2\n2024-05-01T08:20,90,4\n"),
    "cluster.csv": _text("created,run_min,n,owner\n0,30,2,ann\n60,5,1,bob\n"),
    "log.tsv": _text("job\tqueued\tbegan\tdone\tplan_gpu\na\t0\t1000\t61000\t50\nb\t500\t2000\t\t800\n"),
    "train.py": train,
    "bin/trine": command,
    "bin/torchrun": launcher,
    "profile.json": profile,
    "resnet.csv.gz": records,
    "bert.csv.gz": records,
    "gpus-64.csv": slowdowns,
    "workload-1.csv": pal_jobs,
    "simulation_throughputs.json": throughputs,
    "problem.json": problem,
    "best_type.py": share_policy,
    "nodes.csv.gz": nodes,
    "job.yaml": job,
    "job.sh": _text("#!/bin/bash\n#SBATCH --time=1\ntrue\n"),
    "measured.json": features,
    "TVN-load0.9-seed1": world,
    "steps.csv": _text(
        "model,gpus,nodes,racks,step_s\nvgg19,1,1,1,0.30\nvgg19,4,1,1,0.31\nvgg19,8,2,1,0.52\nvgg19,8,8,1,0.75\n"
    ),
    "examples/shares": _example,
    "examples/helios_sample.csv": _example,
    "lab.yaml": _text("nodes: [{name: n1, gpus: 1}]\n"),
}


def make(folder: Path, names: tuple[str, ...]) -> None:
    for name in ("bin/trine", *names):
        MAKERS[name](folder / name)
