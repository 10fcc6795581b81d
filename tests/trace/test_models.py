"""Models for jobs without any: drawn by seed and job id, gangs respected, share of network-sensitive gangs as asked."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from trine.cli.main import app
from trine.core.errors import InputError
from trine.core.job import Job
from trine.perf.model_traffic import shipped_table
from trine.trace import ImportOptions, load
from trine.trace.generate import generate
from trine.trace.models import DEFAULT_MODELS, Mix, MixModel, draw_models, find_mix, mix_names, network_sensitive

SINGLE_GPU_MODELS = ("A3C", "CycleGAN", "Recommendation")


def gangs(count: int, gpus: int = 4) -> list[Job]:
    return [Job(id=f"j{i}", submit_s=0.0, gpus=gpus, steps=600.0) for i in range(count)]


def mix(name: str) -> Mix:
    return find_mix(name, "--set", "models")


def sensitive(jobs: list[Job]) -> float:
    return sum(network_sensitive(job.model) for job in jobs) / len(jobs)


def test_a_job_draws_the_same_model_whatever_other_jobs_there_are() -> None:
    jobs = gangs(200)
    drawn = draw_models(jobs, mix("draw"), seed=3, sensitive_share=0.5)
    assert drawn == draw_models(jobs, mix("draw"), seed=3, sensitive_share=0.5)
    assert drawn[7::-3] == draw_models(jobs[7::-3], mix("draw"), seed=3, sensitive_share=0.5)
    assert drawn != draw_models(jobs, mix("draw"), seed=4, sensitive_share=0.5)


@pytest.mark.parametrize("name", ["draw", "gavel", "philly", "pai"])
@pytest.mark.parametrize("share", [0.0, 0.3, 0.8, 1.0])
def test_the_share_of_sensitive_gangs_is_as_asked(name: str, share: float) -> None:
    found = sensitive(draw_models(gangs(4000), mix(name), seed=1, sensitive_share=share))
    assert found == share if share in (0.0, 1.0) else abs(found - share) < 0.03


def test_a_larger_share_only_turns_insensitive_gangs_into_sensitive_ones() -> None:
    few, many = (draw_models(gangs(500), mix("draw"), 1, share) for share in (0.3, 0.6))
    changed = [(a.model, b.model) for a, b in zip(few, many, strict=True) if a.model != b.model]
    assert changed
    assert all(network_sensitive(b) and not network_sensitive(a) for a, b in changed)


@pytest.mark.parametrize("share", [None, 0.0, 0.5])
def test_gangs_draw_no_model_that_runs_on_one_gpu_only(share: float | None) -> None:
    many = draw_models(gangs(1000), mix("gavel"), 0, share)
    assert not [job.model for job in many if job.model.startswith(SINGLE_GPU_MODELS)]
    single = draw_models(gangs(1000, gpus=1), mix("gavel"), 0, share)
    assert {name for name in SINGLE_GPU_MODELS if any(job.model.startswith(name) for job in single)} == set(
        SINGLE_GPU_MODELS
    )


def test_weights_of_a_mix_are_kept_and_classes_come_with_it() -> None:
    drawn = draw_models(gangs(6000), mix("philly"), 0)
    counts = Counter(job.model for job in drawn)
    assert abs(counts["vgg19"] / 6000 - 211 / 480) < 0.03
    assert {job.app_class for job in drawn if job.model == "vgg19"} == {"C"}


def test_run_times_stay_and_steps_of_gavels_types_fit_its_throughput_table() -> None:
    drawn = draw_models([*gangs(50), *gangs(50, gpus=1), *gangs(50, gpus=12)], mix("gavel"), 0)
    assert all(job.ideal_s == pytest.approx(600.0) for job in drawn)
    from trine.inputs.throughputs import load_throughputs

    table = load_throughputs("gavel-simulation")
    rates = [table.rate(job.model, job.gpus, "v100") for job in drawn]
    assert [1 / job.step_s for job in drawn if job.step_s] == pytest.approx(rates)


def test_every_model_of_every_mix_has_known_traffic() -> None:
    table = shipped_table()
    for name in mix_names():
        for model in mix(name).models:
            table.of(model.name)
    assert table.unknown_models() == ()
    assert 0.3 < sum(map(network_sensitive, DEFAULT_MODELS)) / len(DEFAULT_MODELS) < 0.7


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("LM (batch size 5)", True),
        ("ResNet-18 (batch size 16)", True),
        ("ResNet-18 (batch size 256)", False),
        ("ResNet-50 (batch size 128)", False),
        ("VGG-19", True),
        ("resnet152", False),
    ],
)
def test_sensitivity_agrees_with_published_measurements(model: str, expected: bool) -> None:
    """Gavel's table of spread V100 gangs; skew of Tiresias for the image models."""
    assert network_sensitive(model) is expected


def test_a_mix_of_one_kind_cannot_give_a_share_of_the_other() -> None:
    calm = Mix("calm", (MixModel("ResNet-50"),))
    draw_models(gangs(3), calm, 0, 0.0)
    with pytest.raises(InputError, match="no model of the mix 'calm' for gangs is network-sensitive"):
        draw_models(gangs(3), calm, 0, 0.2)


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "trace.csv"
    path.write_text(text)
    return path


OWN = "job_id,submit_s,gpus,duration_s,model,app_class\na,0,4,60,,D\nb,1,4,60,my-model,\nc,2,1,60,,\n"


def test_a_trace_keeps_the_models_and_classes_that_it_names(tmp_path: Path) -> None:
    trace = load(written(tmp_path, OWN), options=ImportOptions(models="philly"))
    a, b, c = trace.jobs
    assert (b.model, b.app_class, a.app_class) == ("my-model", "", "D")
    assert {a.model, c.model} <= {model.name for model in mix("philly").models}
    assert trace.summary.sentences[-1].startswith("Models of 2 jobs drawn from the mix 'philly'; ")
    assert [job.model for job in load(written(tmp_path, OWN)).jobs] == ["", "my-model", ""]


def test_a_trace_whose_jobs_all_name_models_says_that_nothing_was_drawn(tmp_path: Path) -> None:
    path = written(tmp_path, "job_id,submit_s,gpus,duration_s,model\na,0,4,60,m\n")
    assert load(path, options=ImportOptions(models="draw")).summary.sentences[-1].startswith("No model drawn")


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"models": "drawn"}, "unknown mix of models 'drawn' (did you mean 'draw'?)"),
        ({"models": "draw", "sensitive_share": "1.5"}, "expected a share from 0 to 1"),
        ({"sensitive_share": "0.5"}, "expected models=draw beside it"),
        ({"models": "draw", "sensitive_share": "half"}, "found 'half'; expected a number"),
    ],
)
def test_bad_settings_are_told(tmp_path: Path, settings: dict[str, str], complaint: str) -> None:
    with pytest.raises(InputError) as caught:
        load(written(tmp_path, OWN), options=ImportOptions.parse(settings))
    assert complaint in str(caught.value)


@pytest.mark.parametrize("workload", ["philly", "gavel-continuous-multiple"])
@pytest.mark.parametrize("told", [{"models": "draw"}, {"sensitive_share": 1.0}, {"models": "gavel"}])
def test_generated_workloads_change_their_models_and_nothing_else(workload: str, told: dict[str, Any]) -> None:
    plain = generate(workload, jobs=300, seed=2, gpus=64)
    drawn = generate(workload, jobs=300, seed=2, gpus=64, **told)
    assert [(j.id, j.submit_s, j.gpus, j.user) for j in plain] == [(j.id, j.submit_s, j.gpus, j.user) for j in drawn]
    assert [j.ideal_s for j in drawn] == pytest.approx([j.ideal_s for j in plain])
    assert [j.model for j in plain] != [j.model for j in drawn]
    if "sensitive_share" in told:
        assert sensitive([j for j in drawn if j.gpus > 1]) == 1.0


def test_another_mix_brings_its_own_classes() -> None:
    drawn = generate("philly", jobs=100, seed=2, gpus=64, models="draw")
    assert {job.app_class for job in drawn} == {""}


def cli(*words: str) -> Any:
    return CliRunner().invoke(app, list(words))


def test_the_command_line_draws_models(tmp_path: Path) -> None:
    trace, out = str(written(tmp_path, OWN)), tmp_path / "out.csv"
    told = cli("trace", "convert", trace, str(out), "--set", "trace.models=draw", "--set", "sensitive_share=1")
    assert "2 of 2 gangs" not in told.stderr
    assert "Models of 2 jobs drawn from the mix 'draw'; 1 of 2 gangs are network-sensitive." in told.stderr
    assert network_sensitive(load(out).jobs[0].model)
    run = ("sim", "run", "--cluster", "2x4", "--json")
    told = cli(*run, "--trace", trace, "--set", "trace.models=draw", "--set", "trace.sensitive_share=0")
    assert json.loads(told.stdout)["finished"] == 3
    assert "0 of 2 gangs are network-sensitive" in told.stderr
    told = cli(*run, "--workload", "philly", "--set", "workload.jobs=50", "--set", "workload.sensitive_share=1")
    assert "Models of 50 jobs drawn from the mix 'philly'" in told.stderr
    told = cli("trace", "generate", "philly", "--jobs", "40", "--models", "gavel", "--out", str(out))
    assert {job.model for job in load(out).jobs} <= {model.name for model in mix("gavel").models}


def test_philly_by_virtual_cluster_with_models(shared_data: Path) -> None:
    path = shared_data / "traces" / "philly_flat" / "philly_sia_devVCs.csv.gz"
    told = ImportOptions(group=("ee9e8c",), models="draw", sensitive_share=0.5)
    jobs = load(path, options=told).jobs
    assert len(jobs) == 1511
    assert all(job.model for job in jobs)
    assert abs(sensitive([job for job in jobs if job.gpus > 1]) - 0.5) < 0.1
