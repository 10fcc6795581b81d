"""The text form of observations: versioned JSON that gives back exactly what was remembered."""

from __future__ import annotations

import json
from collections.abc import Mapping
from math import isfinite
from typing import TYPE_CHECKING, Any, NoReturn

from trine.core.cluster import Tier
from trine.core.errors import InputError
from trine.perf.observed_chips import Chip, Departure
from trine.perf.observed_pairs import PairKey, PairPaces
from trine.perf.observed_predictions import Predictions
from trine.perf.observed_rates import Pace, PaceKey
from trine.perf.observed_stretches import Stretch, Stretches
from trine.perf.observed_window import Mass, Window

if TYPE_CHECKING:
    from trine.perf.observed import Observations

FORMAT, VERSION = "trine-observations", 1
WHAT = "observations as trine writes them"


def to_json(seen: Observations) -> str:
    """Compact, one line a section."""
    sections: dict[str, Any] = {
        "format": FORMAT,
        "version": VERSION,
        "gpus": seen.chips.base.gpu_count,
        "token": seen.token,
        "ignored": seen.ignored,
        "serial": seen.stretches.serial,
        "paces": [_pace_row(key, pace) for key, pace in seen.paces.by_key.items()],
        "chips": {
            name: [_chip_row(gpu, chip) for gpu, chip in sorted(chips.items())]
            for name, chips in sorted(seen.chips.by_class.items())
        },
        "stretches": [_stretch_row(s) for _, s in sorted(seen.stretches.latest.items())],
        "predictions": list(seen.predictions.rows),
        "pairs": [_pair_row(key, pace) for key, pace in seen.pairs.by_key.items()],
        "pair_stretches": [[*_stretch_row(s), s.next_to] for s in seen.pairs.stretches.values()],
        "pair_serial": seen.pairs.serial,
    }
    lines = [f'"{name}":{json.dumps(value, separators=(",", ":"))}' for name, value in sections.items()]
    return "{" + ",\n".join(lines) + "}\n"


def _pace_row(key: PaceKey, pace: Pace) -> list[Any]:
    gangs = [[mark, list(window.flat), pace.latest.get(mark)] for mark, window in pace.gangs.items()]
    return [*_key_row(key), pace.app_class, pace.runs, pace.mass.amount, pace.mass.at_s, pace.published, gangs]


def _pair_row(key: PairKey, pace: Pace) -> list[Any]:
    return [key.other, *_pace_row(key.alone, pace)]


def _key_row(key: PaceKey) -> list[Any]:
    return [key.model, key.gang, key.gpu_type, int(key.tier)]


def _chip_row(gpu: int, chip: Chip) -> list[Any]:
    departure = [chip.departure.since_s, chip.departure.runs] if chip.departure else None
    counts = [chip.runs, chip.weak_runs, chip.mass.amount, chip.mass.at_s, chip.published]
    return [gpu, *counts, departure, list(chip.own.flat), list(chip.bounds.flat)]


def _stretch_row(s: Stretch) -> list[Any]:
    return [s.run, list(s.gpus), _key_row(s.key), s.serial, s.goes_on, s.seconds, s.steps]


def from_json(text: str, empty: Observations, gpu_ids: Mapping[int, int] | None, where: str) -> Observations:
    """``empty`` filled with what ``text`` holds; anything odd is refused with one sentence."""
    sections = _parsed(text, where)
    _check_head(sections, empty, gpu_ids, where)
    new_id = gpu_ids if gpu_ids is not None else {gpu: gpu for gpu in range(empty.chips.base.gpu_count)}
    try:
        _fill(empty, sections, new_id, renumbered=gpu_ids is not None)
    except (KeyError, TypeError, ValueError, IndexError, OverflowError, AttributeError) as error:
        raise InputError(where, f"damaged ({type(error).__name__}: {error})", WHAT) from None
    return empty


def _parsed(text: str, where: str) -> dict[str, Any]:
    try:
        found = json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise InputError(where, f"not valid JSON ({error})", WHAT) from None
    if not isinstance(found, dict):
        raise InputError(where, f"found a {type(found).__name__}", WHAT)
    return found


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"found {constant} for a number")


def _check_head(sections: dict[str, Any], empty: Observations, gpu_ids: Mapping[int, int] | None, where: str) -> None:
    for name, expected in (("format", FORMAT), ("version", VERSION)):
        if sections.get(name) != expected:
            raise InputError(where, f"found {json.dumps(sections.get(name))[:60]}", json.dumps(expected), name)
    known, found = empty.chips.base.gpu_count, sections.get("gpus")
    if gpu_ids is None and found != known:
        expected = f"the {known} GPUs of this cluster, or the new id of each GPU"
        raise InputError(where, f"observations of {json.dumps(found)[:20]} GPUs", expected, "gpus")
    if gpu_ids and not all(0 <= gpu < known for gpu in gpu_ids.values()):
        raise InputError(where, f"new ids {sorted(gpu_ids.values())[:9]}", f"ids from 0 to {known - 1}", "gpu_ids")


def _fill(seen: Observations, sections: dict[str, Any], new_id: Mapping[int, int], renumbered: bool) -> None:
    seen.token, seen.ignored = int(sections["token"]), int(sections["ignored"])
    seen.predictions = Predictions((str(m), p, o) for m, p, o in sections["predictions"])
    for row in sections["paces"]:
        key, pace = _pace(row, new_id, seen.settings.half_life_s)
        if pace.gangs:
            seen.paces.by_key[key] = pace
    base = seen.chips.base
    for name, rows in sections["chips"].items():
        kept = [row for row in rows if row[0] in new_id] if renumbered else rows
        seen.chips.by_class[name] = {new_id[row[0]]: _chip(row, seen.settings.half_life_s) for row in kept}
    # Serials go on even where the stretches do not: they tell samples apart.
    latest = [] if renumbered else [_stretch(row) for row in sections["stretches"]]
    seen.stretches = Stretches(seen.settings, int(sections["serial"]), latest)
    _fill_pairs(seen, sections, new_id, renumbered)
    seen.token += seen.chips.rebase(base)


def _fill_pairs(seen: Observations, sections: dict[str, Any], new_id: Mapping[int, int], renumbered: bool) -> None:
    """Older versions wrote no pairs."""
    seen.pairs = PairPaces(seen.settings, int(sections.get("pair_serial", 0)))
    for other, *row in sections.get("pairs", ()):
        key, pace = _pace(row, new_id, seen.settings.half_life_s)
        if pace.gangs:
            seen.pairs.by_key[PairKey(key.model, str(other), key.gang, key.gpu_type, key.tier)] = pace
    for *row, other in () if renumbered else sections.get("pair_stretches", ()):
        stretch = _stretch(row)
        stretch.next_to = str(other)
        seen.pairs.stretches[stretch.run] = stretch


def _key(row: list[Any]) -> PaceKey:
    model, gang, gpu_type, tier = row
    return PaceKey(str(model), int(gang), str(gpu_type), Tier(tier))


def _pace(row: list[Any], new_id: Mapping[int, int], half_life_s: float) -> tuple[PaceKey, Pace]:
    key, pace = _key(row[:4]), Pace()
    app_class, runs, mass, mass_at_s, published, gangs = row[4:]
    pace.app_class, pace.runs, pace.published = str(app_class), int(runs), float(published)
    pace.mass = Mass(float(mass), float(mass_at_s))
    for mark, flat, gpus in gangs:
        if key.gang > 1 or mark in new_id:
            new_mark = new_id[mark] if key.gang == 1 else int(mark)
            pace.gangs[new_mark] = _window(flat)
            pace.summarise(new_mark)
            if gpus is not None and all(gpu in new_id for gpu in gpus):
                pace.latest[new_mark] = tuple(new_id[gpu] for gpu in gpus)
    if pace.gangs:
        pace.settle(half_life_s)
    return key, pace


def _window(flat: list[float]) -> Window:
    if not all(isfinite(value) for value in flat):
        raise ValueError("a number is not finite")
    return Window(flat)


def _chip(row: list[Any], half_life_s: float) -> Chip:
    _, runs, weak_runs, mass, mass_at_s, published, departure, own, bounds = row
    chip = Chip(float(published))
    chip.runs, chip.weak_runs, chip.mass = int(runs), int(weak_runs), Mass(float(mass), float(mass_at_s))
    chip.own, chip.bounds = _window(own), _window(bounds)
    if chip.own:
        chip.middle = chip.own.faded_median(half_life_s)
    if departure is not None:
        since_s, drifting_runs = departure
        chip.departure = Departure(float(since_s), int(drifting_runs))
    return chip


def _stretch(row: list[Any]) -> Stretch:
    run, gpus, key, serial, goes_on, seconds, steps = row
    stretch = Stretch(str(run), tuple(int(gpu) for gpu in gpus), _key(key), int(serial), bool(goes_on))
    stretch.add(float(steps), float(seconds))
    return stretch
