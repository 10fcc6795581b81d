"""The examples do what they say: job files are valid, the Trainer callback saves and stops, DDP resumes bit for bit.

Transformers is not needed here: a few lines stand in for its Trainer and call the callback as that does.
"""

from __future__ import annotations

import importlib.util
import json
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sdk.conftest import EXAMPLES, FakeJob, ended
from trine.inputs.job_file import read_job_file

JOB_FILES = sorted([*EXAMPLES.glob("*.yaml"), *EXAMPLES.glob("workload/*.yaml")])
WORKLOAD = [path for path in JOB_FILES if path.parent.name == "workload"]

TRAINER = """
import json, sys
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, sys.argv[1])
import trine.sdk
from huggingface_trainer import TrineCallback, checkpoint_folder, newest_checkpoint

@dataclass
class State:
    global_step: int = 0
    max_steps: int = 3000
    total: int = 0

@dataclass
class Control:
    should_save: bool = False
    should_training_stop: bool = False

def train(pace_s, callback):
    import time
    folder, state, control = checkpoint_folder(), State(), Control()
    if newest := newest_checkpoint(folder):
        state = State(**json.loads((Path(newest) / "trainer_state.json").read_text()))
    control = callback.on_train_begin(None, state, control, model=None)
    while state.global_step < state.max_steps and not control.should_training_stop:
        state.global_step += 1
        state.total = (state.total * 31 + state.global_step) % 1_000_003
        time.sleep(pace_s)
        control.should_save = False
        control = callback.on_step_end(None, state, control, model=None)
        if control.should_save:
            checkpoint = folder / f"checkpoint-{state.global_step}"
            checkpoint.mkdir(parents=True)
            (checkpoint / "trainer_state.json").write_text(json.dumps(vars(state)))
            control = callback.on_save(None, state, control, model=None)
    return state

state = train(float(sys.argv[2]), TrineCallback())
trine.sdk.exit_if_stopped()
print(state.total)
"""


def test_the_trainer_callback_saves_stops_and_goes_on(job: FakeJob) -> None:
    (job.folder / "trainer.py").write_text(TRAINER)
    process = job.start("trainer.py", EXAMPLES, 0.002)
    job.reached(1, process)
    job.stop(process)
    assert ended(process)[0] == 85
    stopped_at = job.progress()["checkpoint_step"]
    assert 0 < stopped_at == job.progress()["step"] < 3000
    (job.checkpoints / "checkpoint-2999").mkdir()  # begun by a Trainer that was killed
    job.begin()
    code, out, err = ended(job.start("trainer.py", EXAMPLES, 0.0))
    assert code == 0, err
    expected = 0
    for step in range(1, 3001):
        expected = (expected * 31 + step) % 1_000_003
    assert int(out) == expected


def test_two_ranks_of_a_trainer_stop_after_the_same_step(job: FakeJob) -> None:
    (job.folder / "trainer.py").write_text(TRAINER)
    gang = [
        job.start("trainer.py", EXAMPLES, pace_s, rank=rank, world=2, TRINE_CHECKPOINT_DIR=str(job.folder / f"r{rank}"))
        for rank, pace_s in enumerate((0.003, 0.004))
    ]
    for rank, process in enumerate(gang):
        job.reached(1, process, rank)
    job.stop(gang[0])
    assert [ended(process)[0] for process in gang] == [85, 85]
    assert job.progress(0)["step"] == job.progress(1)["step"] < 3000


@pytest.mark.parametrize("path", JOB_FILES, ids=lambda path: path.stem)
def test_job_files_are_valid_and_name_what_exists(path: Path) -> None:
    for spec in read_job_file(path):
        assert spec.workdir == str(EXAMPLES)
        script = EXAMPLES / spec.run[1]
        assert script.is_file()
        if spec.steps is not None:
            assert f"--steps {spec.steps:.0f}" in " ".join(spec.run)


def test_the_workload_has_a_dozen_jobs_one_to_preempt_and_a_gang_over_two_nodes() -> None:
    specs = [spec for path in WORKLOAD for spec in read_job_file(path)]
    assert len(specs) == 12
    assert specs[0].priority < min(spec.priority for spec in specs[1:])
    assert [spec.gpus.count for spec in specs if spec.nodes == 2] == [2]
    assert max(spec.gpus.count for spec in specs) == 4


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.name)
def test_every_example_says_how_to_submit_it(path: Path) -> None:
    (spec,) = read_job_file(path)
    assert f"trine submit examples/{path.name}" in (EXAMPLES / spec.run[1]).read_text()


def test_without_transformers_the_example_says_what_is_missing() -> None:
    if importlib.util.find_spec("transformers"):
        pytest.skip("transformers is installed")
    command = [sys.executable, str(EXAMPLES / "huggingface_trainer.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert "needs transformers" in done.stderr


def _free_port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


def _ddp(job: FakeJob, step_s: float) -> list[subprocess.Popen[str]]:
    network = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": _free_port(), "GLOO_SOCKET_IFNAME": "lo"}
    script, more = EXAMPLES / "pytorch_ddp.py", ("--steps", 200, "--width", 32, "--step-s", step_s)
    return [job.start(script, *more, rank=rank, world=2, **network) for rank in (0, 1)]


def _to_the_end(job: FakeJob) -> float:
    """The loss that rank 0 prints. Now and then PyTorch aborts while the interpreter ends, when all is done and saved
    (a thread of its own is destroyed while it runs): such an attempt is started again, as ``retries`` would."""
    for _ in range(3):
        job.begin()
        done = [ended(process) for process in _ddp(job, step_s=0.0)]
        if any(code == -signal.SIGABRT and "terminate called without" in err for code, _, err in done):
            continue
        assert [code for code, _, _ in done] == [0, 0], done[0][2]
        return float(json.loads(done[0][1])["loss"])
    pytest.fail("PyTorch aborted three times")


@pytest.mark.training
def test_ddp_interrupted_and_resumed_has_the_same_loss(job: FakeJob, tmp_path_factory: pytest.TempPathFactory) -> None:
    if importlib.util.find_spec("torch") is None:
        pytest.skip("PyTorch is not installed (make training)")
    gang = _ddp(job, step_s=0.05)
    job.reached(3, gang[0])
    job.stop(*gang)
    codes = [ended(process)[0] for process in gang]
    assert codes == [85, 85]
    assert job.saved_steps() == [job.progress(0)["step"]] == [job.progress(1)["step"]]
    undisturbed = FakeJob(tmp_path_factory.mktemp("undisturbed"))
    try:
        assert _to_the_end(job) == _to_the_end(undisturbed)
    finally:
        undisturbed.close()
