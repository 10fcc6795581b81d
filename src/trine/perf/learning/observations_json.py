"""The text form of observations: versioned JSON that gives back exactly what was remembered.

Snapshots of the daemon contain it: names of sections and the order of values in a row are a file format, not code.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from math import isfinite
from typing import Any, NoReturn

from trine.core.cluster import Tier
from trine.core.errors import InputError
from trine.perf.learning.chip_slowdowns import ChipEstimate, DriftFlag
from trine.perf.learning.evidence import EvidenceWeight, LearningSettings, Window
from trine.perf.learning.observations import Observations, Predictions
from trine.perf.learning.rates import PairKey, PairRateEstimates, RateEstimate, RateKey, RunSegment, RunSegments
from trine.perf.variability import VariabilityTable

FORMAT, VERSION = "trine-observations", 1
WHAT = "observations as trine writes them"


def observations_to_json(seen: Observations) -> str:
    """All of it but profile and settings, one line a section; equal memories give equal text."""
    sections: dict[str, Any] = {
        "format": FORMAT,
        "version": VERSION,
        "gpus": seen.chips.base.gpu_count,
        "token": seen.token,
        "ignored": seen.ignored,
        "serial": seen.segments.serial,
        "paces": [_rate_row(key, estimate) for key, estimate in seen.rates.by_key.items()],
        "chips": {
            name: [_chip_row(gpu, chip) for gpu, chip in sorted(chips.items())]
            for name, chips in sorted(seen.chips.by_class.items())
        },
        "stretches": [_segment_row(s) for _, s in sorted(seen.segments.latest.items())],
        "predictions": list(seen.predictions.rows),
        "pairs": [[key.other, *_rate_row(key.alone, estimate)] for key, estimate in seen.pairs.by_key.items()],
        "pair_stretches": [[*_segment_row(s), s.co_runner] for s in seen.pairs.segments.values()],
        "pair_serial": seen.pairs.serial,
    }
    lines = [f'"{name}":{json.dumps(value, separators=(",", ":"))}' for name, value in sections.items()]
    return "{" + ",\n".join(lines) + "}\n"


def _rate_row(key: RateKey, known: RateEstimate) -> list[Any]:
    gangs = [[gang, list(window.flat), known.latest.get(gang)] for gang, window in known.gangs.items()]
    counts = [known.runs, known.weight.amount, known.weight.at_s, known.published]
    return [*_key_row(key), known.app_class, *counts, gangs]


def _key_row(key: RateKey) -> list[Any]:
    return [key.model, key.gang, key.gpu_type, int(key.tier)]


def _chip_row(gpu: int, chip: ChipEstimate) -> list[Any]:
    flag = [chip.flag.since_s, chip.flag.runs] if chip.flag else None
    counts = [chip.runs, chip.weak_runs, chip.weight.amount, chip.weight.at_s, chip.published]
    return [gpu, *counts, flag, list(chip.own.flat), list(chip.bounds.flat)]


def _segment_row(s: RunSegment) -> list[Any]:
    return [s.run, list(s.gpus), _key_row(s.key), s.serial, s.goes_on, s.seconds, s.steps]


def observations_from_json(
    text: str,
    base: VariabilityTable,
    settings: LearningSettings | None = None,
    gpu_ids: Mapping[int, int] | None = None,
    where: str = "observations",
) -> Observations:
    """What ``observations_to_json`` wrote; anything odd is refused with one sentence.

    ``gpu_ids``: new id by old, where the cluster changed; other GPUs are lost.
    """
    empty = Observations(base, settings)
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
        key, estimate = _rate(row, new_id, seen.settings.half_life_s)
        if estimate.gangs:
            seen.rates.by_key[key] = estimate
    base = seen.chips.base
    for name, rows in sections["chips"].items():
        kept = [row for row in rows if row[0] in new_id] if renumbered else rows
        seen.chips.by_class[name] = {new_id[row[0]]: _chip(row, seen.settings.half_life_s) for row in kept}
    # Serials go on even where the segments do not: they distinguish samples.
    latest = [] if renumbered else [_segment(row) for row in sections["stretches"]]
    seen.segments = RunSegments(seen.settings, int(sections["serial"]), latest)
    _fill_pairs(seen, sections, new_id, renumbered)
    seen.token += seen.chips.rebase(base)


def _fill_pairs(seen: Observations, sections: dict[str, Any], new_id: Mapping[int, int], renumbered: bool) -> None:
    """Older versions wrote no pairs."""
    seen.pairs = PairRateEstimates(seen.settings, int(sections.get("pair_serial", 0)))
    for other, *row in sections.get("pairs", ()):
        key, estimate = _rate(row, new_id, seen.settings.half_life_s)
        if estimate.gangs:
            seen.pairs.by_key[PairKey(key.model, str(other), *key[1:])] = estimate
    for *row, other in () if renumbered else sections.get("pair_stretches", ()):
        segment = _segment(row)
        segment.co_runner = str(other)
        seen.pairs.segments[segment.run] = segment


def _key(row: list[Any]) -> RateKey:
    model, gang, gpu_type, tier = row
    return RateKey(str(model), int(gang), str(gpu_type), Tier(tier))


def _rate(row: list[Any], new_id: Mapping[int, int], half_life_s: float) -> tuple[RateKey, RateEstimate]:
    key, known = _key(row[:4]), RateEstimate()
    app_class, runs, weight, weight_at_s, published, gangs = row[4:]
    known.app_class, known.runs, known.published = str(app_class), int(runs), float(published)
    known.weight = EvidenceWeight(float(weight), float(weight_at_s))
    for gang, flat, gpus in gangs:
        if key.gang > 1 or gang in new_id:
            # A gang of one is identified by its GPU, a larger one by a checksum that need not follow new ids.
            new_gang = new_id[gang] if key.gang == 1 else int(gang)
            known.gangs[new_gang] = _window(flat)
            known.summarise(new_gang)
            if gpus is not None and all(gpu in new_id for gpu in gpus):
                known.latest[new_gang] = tuple(new_id[gpu] for gpu in gpus)
    if known.gangs:
        known.update(half_life_s)
    return key, known


def _window(flat: list[float]) -> Window:
    if not all(isfinite(value) for value in flat):
        raise ValueError("a number is not finite")
    return Window(flat)


def _chip(row: list[Any], half_life_s: float) -> ChipEstimate:
    _, runs, weak_runs, weight, weight_at_s, published, flag, own, bounds = row
    chip = ChipEstimate(float(published))
    chip.runs, chip.weak_runs = int(runs), int(weak_runs)
    chip.weight = EvidenceWeight(float(weight), float(weight_at_s))
    chip.own, chip.bounds = _window(own), _window(bounds)
    if chip.own:
        chip.observed = chip.own.faded_median(half_life_s)
    if flag is not None:
        since_s, drifting_runs = flag
        chip.flag = DriftFlag(float(since_s), int(drifting_runs))
    return chip


def _segment(row: list[Any]) -> RunSegment:
    run, gpus, key, serial, goes_on, seconds, steps = row
    segment = RunSegment(str(run), tuple(int(gpu) for gpu in gpus), _key(key), int(serial), bool(goes_on))
    segment.add(float(steps), float(seconds))
    return segment
