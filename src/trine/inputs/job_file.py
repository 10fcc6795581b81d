"""Job files: YAML documents, one job each, as ``JobSpec``; errors name the line of the key."""

from __future__ import annotations

import itertools
import json
import os.path
import re
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from trine.core.errors import InputError
from trine.inputs.job_rules import EXPECTED, MAX_ARGUMENTS, MAX_JOBS
from trine.inputs.job_spec import KEYS, JobSpec, first_error
from trine.inputs.text_file import read_text
from trine.inputs.yaml_reader import Mapping, Value, parse_mapping

MAX_FILE_BYTES = 4_000_000
_TEXTS = re.compile(
    "name|run|workdir|ranks|model|class|queue|user|gpus.types|checkpoint.dir|topology.(requ|pref).*|after|array"
)


def read_job_file(path: str | Path, workdir: str = "") -> list[JobSpec]:
    """The jobs of a YAML file, one per document.

    A relative ``workdir`` or checkpoint directory is taken from the file's directory; ``workdir`` is for jobs without.
    """
    text = read_text(path, "a job file", MAX_FILE_BYTES)
    documents = _documents(text)
    if len(documents) > MAX_JOBS:
        raise InputError(str(path), f"{len(documents):,} documents", f"at most {MAX_JOBS:,} jobs in a file")
    return [_job(parse_mapping(document, str(path), "a job file"), Path(path), workdir) for document in documents]


def _documents(text: str) -> list[str]:
    """The YAML documents of ``text``, each after as many empty lines as keep its line numbers true."""
    starts = [match.start() for match in re.finditer(r"^---(?=\s|$)", text, re.MULTILINE)]
    bounds = [0, *starts, len(text)]
    parts = [(text.count("\n", 0, start), text[start:end]) for start, end in itertools.pairwise(bounds)]
    filled = [(line, part) for line, part in parts if re.search(r"^(?!---\s*$)\s*[^#\s]", part, re.MULTILINE)]
    return ["\n" * line + part for line, part in filled] or [text]


def _job(top: Mapping, file: Path, workdir: str) -> JobSpec:
    plain = _plain(top, "")
    top.finish()
    folder = file.parent.absolute()
    for keys in (plain, plain.get("checkpoint", {})):
        for key in {"workdir", "dir"} & keys.keys():
            keys[key] = os.path.normpath(folder / keys[key])
    if workdir:
        plain.setdefault("workdir", workdir)
    try:
        return JobSpec.model_validate_json(json.dumps(plain))
    except ValidationError as error:
        found = first_error(error, top.where)
        raise InputError(_line_of(top, found), found.found, found.expected, found.field) from None


def _plain(keys: Mapping, path: str) -> dict[str, Any]:
    """The values of known keys as JSON has them. Nothing else is opened, so aliases cannot blow a file up."""
    read: dict[str, Any] = {}
    for key in KEYS[path]:
        if value := keys.get(key):
            full = f"{path}.{key}" if path else key
            read[key] = _plain(value.mapping(), full) if full in KEYS and value.is_mapping else _value(value, full)
    return read


def _value(value: Value, path: str) -> Any:
    if path == "env" and value.is_mapping:
        return {name: entry.text(empty=True) for name, entry in value.mapping().values()}
    if path in ("run", "gpus.types", "after") and not value.is_scalar and not value.is_mapping:
        return [entry.text(empty=True) for entry in value.list()[: MAX_ARGUMENTS + 1]]
    if not value.is_scalar or path in ("checkpoint", "topology", "env"):
        raise value.wrong(EXPECTED[path])
    return value.text() if _TEXTS.fullmatch(path) else value.plain()


def _line_of(top: Mapping, error: InputError) -> str:
    keys = error.field.split(".")
    try:
        below = top.value(keys[0]).mapping() if len(keys) > 1 else top
        return below.error("", "", keys[-1]).where
    except InputError:
        return top.error("", "", keys[0]).where
