"""The job specification: what a user writes in YAML, gives on the command line or posts as JSON, checked once.

``JobSpec`` is the checked value and its JSON form; ``parse_jobs`` reads it from JSON, ``job_file`` from YAML. What a
job may do (queues, quotas, users) is decided in ``server.access``, whether it can ever run by the scheduler.
"""

from __future__ import annotations

import json
import math
import re
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    PlainValidator,
    StringConstraints,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
)

from trine.core.errors import InputError, nearest, shown
from trine.inputs import job_relations
from trine.inputs import job_rules as rules

_WHOLE = (
    f'a job such as {{"run": "python train.py", "gpus": 1}}, or a list of at most {rules.MAX_JOBS:,}, '
    'or {"jobs": [such a list], "env": {variables of all}}'
)


def _about(key: str) -> str:
    return rules.EXPECTED[key][0].upper() + rules.EXPECTED[key][1:] + "."


def _deadline_text(deadline: float | datetime) -> float | str:
    return deadline.isoformat() if isinstance(deadline, datetime) else deadline


_SECONDS_SCHEMA = {"type": "number", "minimum": rules.SHORTEST_S, "maximum": rules.LONGEST_S}
_DURATION_SCHEMA = {"type": "string", "pattern": f"{rules.DURATION}|{rules.CLOCK}"}
_TIME_SCHEMA = {"type": "string", "format": "date-time"}
_ENV_SCHEMA = {
    "type": "object",
    "maxProperties": rules.MAX_ENV_ENTRIES,
    "propertyNames": {"pattern": rules.ENV_NAME},
    "additionalProperties": {"type": "string", "maxLength": rules.MAX_ENV_BYTES},
}
_RUN_SCHEMA = {
    "anyOf": [
        {"type": "string", "minLength": 1, "maxLength": rules.MAX_COMMAND_BYTES},
        {"type": "array", "minItems": 1, "maxItems": rules.MAX_ARGUMENTS, "items": {"type": "string"}},
    ]
}

_Name = Annotated[
    str, AfterValidator(rules.clean_name), WithJsonSchema({"type": "string", "maxLength": rules.MAX_NAME_LENGTH})
]
_Label = Annotated[str, StringConstraints(pattern=rules.LABEL)]
_User = Annotated[str, StringConstraints(pattern=rules.USER)]
_GpuCount = Annotated[int, Field(ge=1, le=rules.MAX_GPUS), BeforeValidator(rules.whole)]
_RetryCount = Annotated[int, Field(ge=0, le=rules.MAX_RETRIES), BeforeValidator(rules.whole)]
_NodeCount = Annotated[int, Field(ge=1, le=rules.MAX_NODES), BeforeValidator(rules.whole)]
_Tier = Literal["node", "rack", "network"]
_Directory = Annotated[
    str,
    StringConstraints(max_length=rules.MAX_PATH_LENGTH),
    AfterValidator(rules.clean_path),
    WithJsonSchema({"type": "string", "maxLength": rules.MAX_PATH_LENGTH, "pattern": rules.PATH}),
]
_Command = Annotated[
    tuple[str, ...],
    Field(max_length=rules.MAX_ARGUMENTS),
    BeforeValidator(rules.split_command),
    AfterValidator(rules.check_command),
    WithJsonSchema(_RUN_SCHEMA),
]
_Env = Annotated[
    dict[str, str],
    Field(max_length=rules.MAX_ENV_ENTRIES),
    AfterValidator(rules.check_env),
    WithJsonSchema(_ENV_SCHEMA),
]
_Duration = Annotated[
    float, PlainValidator(rules.seconds), WithJsonSchema({"anyOf": [_SECONDS_SCHEMA, _DURATION_SCHEMA]})
]
_Deadline = Annotated[
    float | datetime,
    PlainValidator(rules.deadline),
    PlainSerializer(_deadline_text, return_type=Any),
    WithJsonSchema({"anyOf": [_SECONDS_SCHEMA, _DURATION_SCHEMA, _TIME_SCHEMA]}),
]
_Types = Annotated[
    tuple[Annotated[str, StringConstraints(pattern=rules.GPU_TYPE)], ...],
    Field(max_length=64),
    BeforeValidator(rules.no_types),
    WithJsonSchema(
        {
            "anyOf": [
                {"const": "any"},
                {"type": "array", "maxItems": 64, "items": {"type": "string", "pattern": rules.GPU_TYPE}},
            ]
        }
    ),
]
_After = Annotated[
    tuple[str, ...],
    BeforeValidator(job_relations.split_after),
    AfterValidator(job_relations.check_after),
    WithJsonSchema({"anyOf": [{"type": ["string", "integer"]}, {"type": "array", "maxItems": rules.MAX_JOBS}]}),
]
_Array = Annotated[
    str,
    PlainValidator(job_relations.check_array),
    WithJsonSchema({"type": ["string", "integer"], "examples": ["0-9%3"]}),
]


class _Frozen(BaseModel):
    """Strict: no key that is not known, no text for a number, no NaN."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False, hide_input_in_errors=True)


class Gpus(_Frozen):
    """How many GPUs, and of which types; no types means any."""

    count: _GpuCount
    types: _Types = ()


class Checkpoint(_Frozen):
    """Where the job keeps its checkpoints (by default a directory trine makes), and the time it has to write one."""

    dir: _Directory | None = Field(default=None, description=_about("checkpoint.dir"))
    grace_s: float = Field(default=30.0, ge=0, le=rules.MAX_GRACE_S, description=_about("checkpoint.grace_s"))


class Topology(_Frozen):
    """How close the GPUs must be, and how close they should be if that takes no longer than ``max_wait_s``."""

    required: _Tier | None = Field(default=None, description=_about("topology.required"))
    preferred: _Tier | None = Field(default=None, description=_about("topology.preferred"))
    max_wait_s: float | None = Field(default=None, ge=0, le=rules.LONGEST_S, description=_about("topology.max_wait_s"))

    @field_validator("preferred")
    @classmethod
    def _not_wider(cls, preferred: _Tier | None, info: ValidationInfo) -> _Tier | None:
        required = info.data.get("required")
        if preferred and required and rules.TIERS.index(preferred) > rules.TIERS.index(required):
            raise ValueError(f"preferred {preferred}, which is wider than required {required}")
        return preferred


_ONE_GPU, _ANY_TOPOLOGY, _NO_CHECKPOINT = Gpus(count=1), Topology(), Checkpoint()


_ON_RECORD = {"on record": True}
"""Context of checks on a job that was accepted already."""


class JobSpec(_Frozen):
    """A job as its user describes it. Only ``run`` is needed; everything else has a default."""

    run: _Command = Field(description=_about("run"))
    name: _Name = Field(default="", validate_default=True, description=_about("name"))
    """Never empty after checking: by default that of the script or program it runs."""
    workdir: _Directory | None = Field(default=None, description=_about("workdir"))
    env: _Env = Field(default_factory=dict, description=_about("env"))
    gpus: Annotated[Gpus, BeforeValidator(rules.as_count)] = Field(
        default_factory=lambda: _ONE_GPU, description=_about("gpus")
    )
    nodes: _NodeCount | None = Field(default=None, description=_about("nodes"))
    """The gang spans exactly this many nodes, with equally many GPUs on each; ``None`` leaves it to the placement."""
    ranks: Literal["node", "gpu"] = Field(default="node", description=_about("ranks"))
    model: _Name = Field(default="", description=_about("model"))
    app_class: _Label = Field(default="", alias="class", description=_about("class"))
    queue: _Label = Field(default="", description=_about("queue"))
    """Empty means the default queue."""
    user: _User = Field(default="", description=_about("user"))
    """Empty means the caller."""
    priority: float = Field(default=0.0, ge=-rules.MAX_PRIORITY, le=rules.MAX_PRIORITY, description=_about("priority"))
    checkpoint: Checkpoint = Field(default_factory=lambda: _NO_CHECKPOINT, description=_about("checkpoint"))
    topology: Topology = Field(default_factory=lambda: _ANY_TOPOLOGY, description=_about("topology"))
    deadline: _Deadline | None = Field(default=None, description=_about("deadline"))
    """Seconds from submission, or a point in time."""
    max_runtime: _Duration | None = Field(default=None, description=_about("max_runtime"))
    """Seconds."""
    steps: float | None = Field(default=None, ge=1, le=rules.MAX_STEPS, description=_about("steps"))
    retries: _RetryCount | None = Field(default=None, description=_about("retries"))
    """``None`` leaves it to the queue; once admitted it means 0."""
    preemptible: bool = Field(default=True, description=_about("preemptible"))
    min_run: _Duration | None = Field(default=None, description=_about("min_run"))
    """Seconds."""
    after: _After = Field(default=(), description=_about("after"))
    """Once admitted: ids only, see ``job_relations.predecessor``."""
    array: _Array = Field(default="", description=_about("array"))
    """Of every element; which one a job is, the record of its submission says."""

    @field_validator("name")
    @classmethod
    def _named(cls, name: str, info: ValidationInfo) -> str:
        if name or "run" not in info.data:
            return name
        return rules.name_of(rules.named_after(info.data["run"]).rpartition("/")[2])

    @field_validator("nodes")
    @classmethod
    def _even(cls, nodes: int | None, info: ValidationInfo) -> int | None:
        gpus = info.data.get("gpus")
        if nodes and gpus and gpus.count % nodes:
            raise ValueError(f"{nodes} nodes for {gpus.count} GPUs")
        return nodes

    @field_validator("ranks")
    @classmethod
    def _one_training(cls, ranks: Literal["node", "gpu"], info: ValidationInfo) -> Literal["node", "gpu"]:
        run, gpus, nodes = (info.data.get(key) for key in ("run", "gpus", "nodes"))
        if ranks == "node" or not run or not gpus or gpus.count <= (nodes or 1) or info.context is _ON_RECORD:
            return ranks
        if launcher := rules.launcher_of(run):
            raise ValueError(f"gpu for {launcher}, which starts a process per GPU itself: a whole training per GPU")
        return ranks

    @field_validator("steps")
    @classmethod
    def _possible(cls, steps: float | None, info: ValidationInfo) -> float | None:
        limit_s = info.data.get("max_runtime")
        if steps and limit_s and not rules.SLOWEST * limit_s <= steps <= rules.FASTEST * limit_s:
            raise ValueError(f"{steps:g} steps in {limit_s:g} s")
        return steps

    def deadline_s(self, submitted_s: float) -> float | None:
        """The deadline as Unix time, for a job submitted at ``submitted_s``."""
        if isinstance(self.deadline, datetime):
            return self.deadline.timestamp()
        return None if self.deadline is None else submitted_s + self.deadline

    def as_json(self) -> str:
        """The form that ``parse_jobs`` reads back to the same value."""
        return self.model_dump_json(by_alias=True, exclude_defaults=True)


KEYS = {
    "": tuple(field.alias or name for name, field in JobSpec.model_fields.items()),
    "gpus": tuple(Gpus.model_fields),
    "checkpoint": tuple(Checkpoint.model_fields),
    "topology": tuple(Topology.model_fields),
}
_MANY = TypeAdapter(Annotated[list[JobSpec], Field(min_length=1, max_length=rules.MAX_JOBS)])


def parse_jobs(body: bytes | str, where: str = "request") -> list[JobSpec]:
    """The jobs in JSON text: one object, a list of at most ``rules.MAX_JOBS``, or ``{"jobs": [...], "env": {...}}``."""
    start = body[:64] if isinstance(body, str) else body[:64].decode("latin-1")
    if re.match(r'\s*{\s*"jobs"\s*:', start):
        body = _with_common_env(body, where)
    try:
        if body[:64].lstrip()[:1] in (b"[", "["):
            return _MANY.validate_json(body)
        return [JobSpec.model_validate_json(body)]
    except ValidationError as error:
        raise first_error(error, where) from None


def _with_common_env(body: bytes | str, where: str) -> str:
    """The list of jobs in ``{"jobs": [...], "env": {...}}``, each with the common variables below its own.

    So that a sweep of a thousand jobs does not carry its environment a thousand times.
    """
    try:
        request = json.loads(body)
        jobs, env = request.pop("jobs"), request.pop("env", {})
    except (ValueError, RecursionError) as error:
        raise InputError(where, f"not valid JSON ({type(error).__name__})", _WHOLE) from None
    if request or not isinstance(jobs, list) or not isinstance(env, dict):
        found = f"unknown key {shown(min(request))}" if request else "no list of jobs with a mapping env"
        raise InputError(where, found, _WHOLE)
    return json.dumps([_with_env(job, env) for job in jobs])


def _with_env(job: Any, env: dict[str, Any]) -> Any:
    own = job.get("env", {}) if isinstance(job, dict) else None
    return {**job, "env": {**env, **own}} if isinstance(own, dict) else job


_RANGES = {
    "priority": (-rules.MAX_PRIORITY, rules.MAX_PRIORITY),
    "deadline": (rules.SHORTEST_S, rules.LONGEST_S),
    "max_runtime": (rules.SHORTEST_S, rules.LONGEST_S),
    "steps": (1.0, rules.MAX_STEPS),
    "retries": (0, rules.MAX_RETRIES),
    "min_run": (rules.SHORTEST_S, rules.LONGEST_S),
    "grace_s": (0.0, rules.MAX_GRACE_S),
    "max_wait_s": (0.0, rules.LONGEST_S),
}


def recorded_job(body: dict[str, Any]) -> JobSpec:
    """A job that was accepted once, in plain values. JSON knows no tuples, so types are not taken strictly.

    Versions before this one accepted numbers that are refused now. Such a job must not keep the daemon from starting,
    so its numbers are moved to the nearest ones that are accepted.
    """
    try:
        return JobSpec.model_validate(body, strict=False, context=_ON_RECORD)
    except ValidationError:
        return JobSpec.model_validate(_in_range(body), strict=False, context=_ON_RECORD)


def _in_range(body: dict[str, Any]) -> dict[str, Any]:
    moved = {}
    for key, value in body.items():
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if key in _RANGES and is_number and not math.isnan(value):
            low, high = _RANGES[key]
            moved[key] = min(max(value, low), high)
        elif key not in _RANGES or not is_number:
            moved[key] = _in_range(value) if key in ("checkpoint", "topology") else value
    limit_s, steps = moved.get("max_runtime"), moved.get("steps")
    if limit_s is not None and steps is not None:
        # The time limit is enforced, the number of steps is information: the latter gives way.
        moved["steps"] = min(max(steps, rules.SLOWEST * limit_s), rules.FASTEST * limit_s)
    return moved


def first_error(error: ValidationError, where: str) -> InputError:
    """The first thing wrong, in one sentence; misspelt keys come first, as they explain missing ones."""
    errors = error.errors(include_url=False)
    first = next((entry for entry in errors if entry["type"] == "extra_forbidden"), errors[0])
    place = "".join(f"[{part}]" for part in first["loc"][:1] if isinstance(part, int))
    keys = [str(part) for part in first["loc"] if not isinstance(part, int)]
    if first["type"] == "extra_forbidden":
        return _unknown_key(where + place, keys)
    if not keys:
        return InputError(where + place, _found(first), _WHOLE)
    plain = len(keys) > 1 and keys[:2] != ["gpus", "count"] and re.fullmatch(rules.ENV_NAME, keys[1])
    field = ".".join(keys[:2]) if plain else keys[0]
    return InputError(where + place, _found(first), rules.EXPECTED.get(field, rules.EXPECTED[keys[0]]), field)


def _unknown_key(where: str, keys: list[str]) -> InputError:
    known = KEYS[".".join(keys[:-1])]
    found = f"unknown key {shown(keys[-1])}{nearest(keys[-1], known)}"
    return InputError(where, found, f"one of {', '.join(sorted(known))}", ".".join(keys[:-1]))


def _found(error: Any) -> str:
    kind = error["type"]
    if kind == "missing":
        return "found nothing"
    if kind == "json_invalid":
        return f"not valid JSON ({error['ctx']['error']})"
    if kind == "value_error":
        return f"found {error['ctx']['error']}"
    if kind in ("too_long", "too_short"):
        return f"found {error['ctx']['actual_length']} entries"
    return f"found {shown(error['input'])}"
