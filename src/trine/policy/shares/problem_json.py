"""An allocation problem as a JSON document: what keys it has, and how it becomes arrays. Reads no file itself."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from trine.core.errors import InputError, nearest, unknown_name
from trine.policy.shares.problem import RULES, Entity, Pairs, Problem

UNCONSOLIDATED = "_unconsolidated"
"""After the name of a GPU type: the same GPUs with the gang spread over more nodes than needed."""

TOP_KEYS = ("workers", "jobs", "pairs", "entities", "prices")
JOB_KEYS = (*("id", "gpus", "weight", "throughput", "steps_left", "elapsed_s", "isolated_s", "deadline_s", "entity"),)
LARGEST = 1e15
MOST_GPUS = 1_000_000_000
"""Beyond these a number is a mistake, and arithmetic with it would lose the others."""
WANTED = 'an object with "workers" and "jobs"'


@dataclass
class _Source:
    """Where the document comes from, and what was understood of it so far."""

    where: str
    columns: list[tuple[str, str]] = field(default_factory=list)
    unserved: set[str] = field(default_factory=set)
    """GPU types all jobs know and the cluster does not have."""

    def error(self, found: str, expected: str, at: str) -> InputError:
        return InputError(self.where, found, expected, at)


def problem_from(document: Any, where: str) -> tuple[Problem, list[str]]:
    """The problem a parsed JSON ``document`` states, and notes on what was passed over."""
    source = _Source(where)
    top = _object(source, document, WANTED, "")
    _only(source, top, TOP_KEYS, "")
    workers = _workers(source, top)
    jobs = _jobs(source, top)
    _find_columns(source, workers, jobs)
    entities = _entities(source, top.get("entities"))
    positions = {str(job["id"]): i for i, job in enumerate(jobs)}
    problem = Problem.of(
        workers,
        np.array([_rates(source, job) for job in jobs]).reshape(len(jobs), len(source.columns)),
        columns=source.columns,
        ids=[job["id"] for job in jobs],
        gang=[_whole(source, job.get("gpus", 1), _at(job, "gpus"), 1) for job in jobs],
        weight=_numbers(source, jobs, "weight", 1.0),
        steps_left=_numbers(source, jobs, "steps_left", math.nan),
        elapsed_s=_numbers(source, jobs, "elapsed_s", 0.0),
        isolated_s=_numbers(source, jobs, "isolated_s", 0.0),
        deadline_s=_numbers(source, jobs, "deadline_s", math.inf, minimum=-math.inf),
        arrival=_arrival([job["id"] for job in jobs]),
        entity=_entity_of(source, jobs, entities),
        entities=entities,
        prices=_prices(source, top.get("prices"), workers),
        pairs=_pairs(source, top.get("pairs"), positions),
        where=where,
    )
    return problem, [f"throughputs on {t} are passed over: workers has none" for t in sorted(source.unserved)]


def _workers(source: _Source, top: Mapping[str, Any]) -> dict[str, int]:
    found = _object(source, top.get("workers"), "an object of GPU types and how many there are", "workers")
    counts = {t: _whole(source, found[t], f"workers.{t}", 0) for t in sorted(found)}
    if not any(counts.values()):
        raise source.error("no GPUs", "at least one GPU of some type", "workers")
    return counts


def _jobs(source: _Source, top: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The jobs as objects with known keys and ids of their own."""
    found = _list(source, top.get("jobs"), "a list of jobs", "jobs")
    seen: set[str] = set()
    for i, job in enumerate(found):
        job = _object(source, job, "an object", f"jobs[{i}]")
        name = job.get("id")
        if isinstance(name, bool) or not isinstance(name, (int, str)) or name == "":
            raise source.error(_shown(name), "a number or a text", f"jobs[{i}].id")
        if str(name) in seen:
            raise source.error(f"job {name} a second time", "an id of its own for every job", f"jobs[{i}].id")
        seen.add(str(name))
        _only(source, job, JOB_KEYS, f"job {name}")
        if not isinstance(job.get("throughput"), dict):
            raise source.error(_shown(job.get("throughput")), "steps per second by GPU type", _at(job, "throughput"))
    return found


def _find_columns(source: _Source, workers: dict[str, int], jobs: list[Mapping[str, Any]]) -> None:
    """GPU types, and ways of placing on them, that occur; a type only some jobs know is taken for a misspelling."""
    named = {column for job in jobs for column in job["throughput"]}
    placed = {c: c.removesuffix(UNCONSOLIDATED) for c in named if c.endswith(UNCONSOLIDATED) and c not in workers}
    for t in workers:
        source.columns.append((t, t))
        source.columns += [(c, own) for c, own in placed.items() if own == t]
    for job in jobs:
        for column in job["throughput"]:
            if placed.get(column, column) in workers:
                continue
            if not all(column in other["throughput"] for other in jobs):
                raise unknown_name(source.where, "GPU type", column, workers, _at(job, "throughput"))
            source.unserved.add(column)


def _rates(source: _Source, job: Mapping[str, Any]) -> list[float]:
    given = {c: _number(source, v, _at(job, f"throughput.{c}")) for c, v in job["throughput"].items()}
    if given.keys() <= source.unserved:
        hint = "".join(nearest(c, [name for name, _ in source.columns]) for c in list(given)[:1])
        found = f"workers has no GPU type that job {job['id']} runs on{hint}"
        raise source.error(found, f"one of {', '.join(name for name, _ in source.columns)}", _at(job, "throughput"))
    return [given.get(name, 0.0) for name, _ in source.columns]


def _numbers(
    source: _Source, jobs: list[Mapping[str, Any]], key: str, default: float, minimum: float = 0.0
) -> list[float]:
    return [
        default if job.get(key) is None else _number(source, job[key], _at(job, key), minimum=minimum) for job in jobs
    ]


def _arrival(ids: list[int | str]) -> list[int]:
    """Whole numbers arrive in their order, other ids in the order of the list."""
    if not all(isinstance(i, int) for i in ids):
        return list(range(len(ids)))
    rank = {name: i for i, name in enumerate(sorted(ids, key=int))}
    return [rank[name] for name in ids]


def _entities(source: _Source, found: Any) -> list[Entity]:
    result = []
    for name, entry in _object(source, found if found is not None else {}, "an object", "entities").items():
        at = f"entities.{name}"
        entry = _object(source, entry, "an object with weight and rule", at)
        _only(source, entry, ("weight", "rule"), at)
        rule = entry.get("rule") or "fairness"
        if rule not in RULES:
            raise unknown_name(source.where, "rule", str(rule), RULES, at)
        weight = _number(source, entry.get("weight", 1.0), f"{at}.weight")
        if weight <= 0:
            raise source.error(f"{weight:g}", "a number greater than 0", f"{at}.weight")
        result.append(Entity(name, weight, rule))
    return result


def _entity_of(source: _Source, jobs: list[Mapping[str, Any]], entities: list[Entity]) -> list[int]:
    index = {entity.name: i for i, entity in enumerate(entities)}
    for job in jobs:
        name = job.get("entity")
        if name is not None and str(name) not in index:
            raise unknown_name(source.where, "entity", str(name), index, _at(job, "entity"))
    return [-1 if job.get("entity") is None else index[str(job["entity"])] for job in jobs]


def _prices(source: _Source, found: Any, workers: Mapping[str, int]) -> dict[str, float]:
    given = _object(source, found if found is not None else {}, "an object of prices by GPU type", "prices")
    for name in given:
        if name not in workers and name not in source.unserved:
            raise unknown_name(source.where, "GPU type", name, workers, "prices")
    return {name: _number(source, price, f"prices.{name}") for name, price in given.items()}


def _pairs(source: _Source, found: Any, positions: Mapping[str, int]) -> Pairs:
    listed = _list(source, found if found is not None else [], "a list of pairs", "pairs")
    jobs, rates = np.zeros((len(listed), 2), np.int64), np.zeros((len(listed), 2, len(source.columns)))
    seen: set[tuple[int, int]] = set()
    for k, pair in enumerate(listed):
        at = f"pairs[{k}]"
        pair = _object(source, pair, "an object with jobs and throughput", at)
        _only(source, pair, ("jobs", "throughput"), at)
        members = _members(source, pair.get("jobs"), positions, at)
        jobs[k], rates[k] = members, _pair_rates(source, pair.get("throughput"), at)
        key = (min(members), max(members))
        if key in seen:
            raise source.error(f"jobs {pair['jobs']} a second time", "every pair once", at)
        seen.add(key)
    swapped = jobs[:, 0] > jobs[:, 1]
    jobs[swapped], rates[swapped] = jobs[swapped, ::-1], rates[swapped, ::-1]
    return Pairs(jobs, rates)


def _members(source: _Source, found: Any, positions: Mapping[str, int], at: str) -> tuple[int, int]:
    if not isinstance(found, list) or len(found) != 2 or str(found[0]) == str(found[1]):
        raise source.error(_shown(found), "the ids of two different jobs", f"{at}.jobs")
    for name in found:
        if str(name) not in positions:
            raise unknown_name(source.where, "job", str(name), positions, f"{at}.jobs")
    return positions[str(found[0])], positions[str(found[1])]


def _pair_rates(source: _Source, found: Any, at: str) -> Any:
    given = _object(source, found, "steps per second of both jobs by GPU type", f"{at}.throughput")
    rates = np.zeros((2, len(source.columns)))
    names = [name for name, _ in source.columns]
    for column, both in given.items():
        if column in source.unserved:
            continue
        if column not in names:
            raise unknown_name(source.where, "GPU type", column, names, f"{at}.throughput")
        if not isinstance(both, list) or len(both) != 2:
            raise source.error(_shown(both), "two numbers, one for each job", f"{at}.throughput.{column}")
        rates[:, names.index(column)] = [_number(source, v, f"{at}.throughput.{column}") for v in both]
    return rates


def _at(job: Mapping[str, Any], key: str) -> str:
    return f"job {job['id']} {key}"


def _only(source: _Source, found: Mapping[str, Any], known: Iterable[str], at: str) -> None:
    for key in found:
        if key not in known:
            raise unknown_name(source.where, "key", key, known, at)


def _object(source: _Source, found: Any, expected: str, at: str) -> Mapping[str, Any]:
    if not isinstance(found, dict):
        raise source.error(_shown(found), expected, at)
    return found


def _list(source: _Source, found: Any, expected: str, at: str) -> list[Any]:
    if not isinstance(found, list):
        raise source.error(_shown(found), expected, at)
    return found


def _number(source: _Source, found: Any, at: str, minimum: float = 0.0) -> float:
    if isinstance(found, bool) or not isinstance(found, (int, float)) or not minimum <= found <= LARGEST:
        wanted = f"a number from 0 to {LARGEST:g}" if minimum == 0 else f"a number up to {LARGEST:g}"
        raise source.error(_shown(found), wanted, at)
    return float(found)


def _whole(source: _Source, found: Any, at: str, minimum: int) -> int:
    if isinstance(found, bool) or not isinstance(found, (int, float)) or not minimum <= found <= MOST_GPUS:
        raise source.error(_shown(found), f"a whole number from {minimum} to {MOST_GPUS:,}", at)
    if found != int(found):
        raise source.error(_shown(found), "a whole number", at)
    return int(found)


def _shown(found: Any) -> str:
    if found is None:
        return "nothing"
    text = repr(found)
    return text if len(text) <= 60 else f"{text[:57]}..."
