from __future__ import annotations

import random
from pathlib import Path

import pytest

from trine.core.errors import InputError
from trine.profile.app_classes import AppFeatures, classify, describe, merged, read_features, shipped_features

PAL_APPLICATIONS = ("resnet50", "vgg19", "GPT2", "BERT", "DCGAN", "PointNet")


def three_kinds(seed: int = 1, spreads: tuple[float | None, ...] = (None, None, None)) -> list[AppFeatures]:
    """Compute-bound, mixed and memory-bound applications, four each."""
    rng = random.Random(seed)
    centres = {"compute": (0.9, 0.2), "mixed": (0.55, 0.5), "memory": (0.2, 0.85)}
    return [
        AppFeatures(f"{kind}{i}", x + rng.uniform(-0.04, 0.04), y + rng.uniform(-0.04, 0.04), None, spread)
        for (kind, (x, y)), spread in zip(centres.items(), spreads, strict=True)
        for i in range(4)
    ]


def members(rows: list[AppFeatures], **more: object) -> dict[str, tuple[str, ...]]:
    return {c.name: c.members for c in classify(rows, **more).classes}  # type: ignore[arg-type]


def test_kinds_are_found_and_compute_bound_comes_first() -> None:
    found = members(three_kinds())
    assert [sorted({name[:-1] for name in names}) for names in found.values()] == [["compute"], ["mixed"], ["memory"]]
    assert list(found) == ["A", "B", "C"]


def test_measured_sensitivity_decides_the_order_where_there_is_one() -> None:
    found = members(three_kinds(spreads=(0.001, 0.01, 0.03)))
    assert [names[0][:-1] for names in found.values()] == ["memory", "mixed", "compute"]


def test_a_class_not_measured_stands_by_its_neighbour() -> None:
    found = members(three_kinds(spreads=(0.03, None, 0.001)))
    assert [names[0][:-1] for names in found.values()] == ["compute", "mixed", "memory"]


def test_neither_order_of_rows_nor_a_second_run_changes_anything() -> None:
    rows = shipped_features()
    first = classify(rows).as_dict()
    for seed in range(3):
        assert classify(random.Random(seed).sample(rows, len(rows))).as_dict() == first


def test_an_unknown_application_is_the_most_sensitive_kind() -> None:
    table = classify(three_kinds())
    assert table.class_of("never-seen") == "A"
    assert table.class_of("memory2") == "C"


def test_hand_made_classes_win() -> None:
    table = classify(three_kinds(), {"memory0": "A", "brand-new": "B", "mixed1": "D"})
    assert [table.class_of(name) for name in ("memory0", "brand-new", "mixed1", "mixed2")] == ["A", "B", "D", "B"]
    assert any("class D exists by hand only" in note for note in table.notes)
    assert any("by hand: memory0" in line for line in describe(table))


@pytest.mark.parametrize("count", [1, 2])
def test_too_few_applications_are_one_class(count: int) -> None:
    table = classify(three_kinds()[:count])
    assert [c.name for c in table.classes] == ["A"]
    assert "too few" in table.notes[0]


def test_equal_applications_are_one_class() -> None:
    rows = [AppFeatures(f"m{i}", 0.5, 0.5) for i in range(5)]
    assert [c.name for c in classify(rows).classes] == ["A"]


def test_equal_points_do_not_ask_for_more_clusters_than_there_are() -> None:
    rows = [AppFeatures(f"m{i}", 0.1 if i % 2 else 0.9, 0.5) for i in range(8)]
    assert len(classify(rows).classes) == 2


def test_the_number_of_classes_can_be_given() -> None:
    assert len(classify(three_kinds(), k=4).classes) == 4
    with pytest.raises(InputError, match="from 1 to 12"):
        classify(three_kinds(), k=13)


def test_shipped_table_knows_the_published_applications_and_says_what_is_a_guess() -> None:
    rows = {row.name: row for row in shipped_features()}
    assert set(PAL_APPLICATIONS) <= set(rows)
    assert all(row.source for row in rows.values())
    table = classify(list(rows.values()))
    assert table.class_of("resnet50") == "A"
    assert table.class_of("PointNet") != "A"
    assert any("assumed features" in note and "GPT2" in note for note in table.notes)


def test_words_say_who_why_and_how_sensitive() -> None:
    text = "\n".join(describe(classify(shipped_features())))
    for word in ("resnet50", "why:", "how sensitive:", "measured with", "Silhouette by number of classes", "unknown"):
        assert word in text


def test_measured_rows_replace_the_shipped_ones(tmp_path: Path) -> None:
    path = tmp_path / "row.json"
    path.write_text('{"name": "BERT", "compute_util": 0.5, "memory_util": 0.25, "power_w": 200, "steps": 12}')
    rows = {row.name: row for row in merged(shipped_features(), read_features(path))}
    assert (rows["BERT"].compute_util, rows["BERT"].memory_util) == (0.5, 0.25)
    assert rows["BERT"].gpu_spread is not None


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ('{"name": "m", "compute_util": 50, "memory_util": 0.1}', "compute_util: found '50'; expected a number from 0"),
        ('{"name": "m", "compute_util": NaN, "memory_util": 0.1}', "compute_util: found 'NaN'"),
        ('{"name": "m", "compute_util": 0.5, "memory_util": null}', "memory_util: found nothing"),
        ("applications: [{name: m, compute_util: 0.5, memory_utl: 0.1}]", "memory_util: found nothing"),
        ("applications: [{name: m, compute_util: 0.5, memory_util: 0.1, powr: 3}]", "unknown key 'powr'"),
        ("applications: [&a {name: m, compute_util: 0.5, memory_util: 0.1}, *a]", ""),
        ("", "the file is empty"),
    ],
)
def test_bad_features_get_one_sentence(tmp_path: Path, text: str, sentence: str) -> None:
    path = tmp_path / "features.yaml"
    path.write_text(text)
    with pytest.raises(InputError) as error:
        read_features(path)
    assert sentence in str(error.value)
