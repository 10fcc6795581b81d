"""Figures of models: names as traces write them, batch sizes, what is not known."""

from __future__ import annotations

import pytest

from trine.perf.model_families import ALIASES, FAMILIES
from trine.perf.model_traffic import DEFAULT, ModelTraffic, TrafficTable, family_and_batch, shipped_table
from trine.trace.formats.pal import MODELS as PAL_MODELS
from trine.trace.workload import load_workload, workload_names


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("ResNet-18 (batch size 64)", ("resnet18", 64)),
        ("resnet18_bs64", ("resnet18", 64)),
        ("shufflenet_v2_x1_0", ("shufflenetv2x10", None)),
        ("GPT2", ("gpt2", None)),
        ("", ("", None)),
    ],
)
def test_a_name_is_a_family_and_a_batch_size(name: str, expected: tuple[str, int | None]) -> None:
    assert family_and_batch(name) == expected


def test_compute_grows_with_the_batch_and_gradients_do_not() -> None:
    table = shipped_table()
    small, between, large = (table.of(f"LM (batch size {batch})") for batch in (20, 30, 40))
    assert small.compute_s < between.compute_s < large.compute_s
    assert between.compute_s == pytest.approx((small.compute_s + large.compute_s) / 2)
    assert small.gradient_bytes == large.gradient_bytes
    assert table.of("LM", 20) == small
    assert table.of("LM (batch size 20)", 80) == small, "the name is more than the column"


def test_beyond_the_measured_batches_compute_is_in_proportion() -> None:
    table = shipped_table()
    assert table.of("vgg19", 64).compute_s == pytest.approx(2 * table.of("vgg19", 32).compute_s)
    assert table.of("LM (batch size 160)").compute_s == pytest.approx(2 * table.of("LM (batch size 80)").compute_s)


def test_embedding_models_exchange_more_with_larger_batches() -> None:
    table = shipped_table()
    assert table.of("DLRM", 4096).all_to_all_bytes == pytest.approx(4096 * 26 * 128 * 4)
    assert table.of("ctr").all_to_all_bytes > 0 == table.of("BERT").all_to_all_bytes


@pytest.mark.parametrize("model", sorted(PAL_MODELS))
def test_an_iteration_of_pals_models_computes_as_long_as_pal_says(model: str) -> None:
    assert shipped_table().of(model).compute_s == pytest.approx(PAL_MODELS[model].step_s, rel=0.05)


@pytest.mark.parametrize("workload", workload_names())
def test_every_model_of_the_generated_workloads_is_known(workload: str) -> None:
    table = shipped_table()
    for share in load_workload(workload).models:
        table.of(share.name)
    assert table.unknown_models() == ()


def test_unknown_models_take_the_default_and_are_remembered_once() -> None:
    table = shipped_table()
    assert table.of("mystery") is table.of("mystery", 32) is DEFAULT
    assert table.of("vgg16") is not DEFAULT
    assert table.of("another") is DEFAULT
    assert table.unknown_models() == ("another", "mystery")
    assert shipped_table().unknown_models() == (), "every run has its own"


def test_own_figures_win_over_the_family() -> None:
    mine = ModelTraffic(1e6, 0.5)
    table = shipped_table().with_models({"vgg16": mine})
    assert table.of("vgg16", 64) is mine
    assert TrafficTable({"x": mine}).of("vgg16") is DEFAULT


def test_every_row_of_the_table_has_a_source_and_sane_figures() -> None:
    assert set(ALIASES.values()) <= set(FAMILIES)
    assert not set(ALIASES) & set(FAMILIES)
    for name, family in FAMILIES.items():
        assert family_and_batch(name) == (name, None)
        assert len(family.source) > 10, name
        assert family.gradient_bytes > 0 and 1 <= family.overlap <= 10 and family.restart_s > 0, name
        assert all(seconds > 0 for seconds in family.compute_s.values()), name
