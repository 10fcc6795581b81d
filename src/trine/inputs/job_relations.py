"""What ``after`` and ``array`` of a job say: which jobs have to end first, and how; which indices its elements have.

Plain values, without pydantic. What a submission makes of them is in ``server.submission``.
"""

from __future__ import annotations

import re
from typing import Any, Literal, NamedTuple, cast

from trine.core.errors import shown
from trine.inputs.job_rules import MAX_JOBS, clean_name

Condition = Literal["ok", "any", "failed"]
"""How a predecessor has to end: well, in whatever way, or in any way but well."""

MAX_INDEX = 1_000_000
_PREFIX = re.compile(r"(ok|any|failed):(.*)", re.DOTALL)
_PART = re.compile(r"([0-9]{1,7})(?:-([0-9]{1,7})(?::([0-9]{1,7}))?)?")


class Predecessor(NamedTuple):
    """A job that has to end first: its id, or the name of a job before it in the same submission."""

    job: str
    condition: Condition = "ok"

    @property
    def is_id(self) -> bool:
        return self.job.isascii() and self.job.isdecimal()

    def __str__(self) -> str:
        return self.job if self.condition == "ok" else f"{self.condition}:{self.job}"


def predecessor(text: str) -> Predecessor:
    """``17``, ``any:17`` or ``failed:17``; a name may stand in the place of the id."""
    match = _PREFIX.fullmatch(text)
    condition, job = (match[1], match[2]) if match else ("ok", text)
    return Predecessor(job, cast(Condition, condition))


def split_after(after: Any) -> Any:
    """Predecessors as a tuple of texts: of a number, of a text with commas or blanks between them, or of a list.

    A name with a blank in it can only stand in a list. ``ValueError`` where a text names no job, or none beside a
    comma: the id was to come from a command that failed, and the job must not start as if it had none to wait for."""
    if isinstance(after, str):
        listed = [part.split() for part in after.split(",")]
        if not all(listed):
            raise ValueError(shown(after))
        after = [word for words in listed for word in words]
    if isinstance(after, int) and not isinstance(after, bool):
        after = [after]
    if not isinstance(after, list | tuple):
        return after
    return tuple(str(term) if isinstance(term, int) and not isinstance(term, bool) else term for term in after)


def check_after(after: tuple[str, ...]) -> tuple[str, ...]:
    """Every predecessor once, in its shortest form."""
    if len(after) > MAX_JOBS:
        raise ValueError(f"{len(after):,} jobs")
    found: dict[str, None] = {}
    for term in after:
        named = predecessor(term)
        job = named.job.lstrip("0") if named.is_id else clean_name(named.job)
        if not job:
            raise ValueError(shown(term))
        found[str(Predecessor(job, named.condition))] = None
    return tuple(found)


class Array(NamedTuple):
    """Indices of the elements of an array, ascending, and how many of them may be under way at once."""

    indices: tuple[int, ...]
    most_at_once: int | None = None


def parse_array(text: str) -> Array:
    """``0-9``, ``0-30:10``, ``1,3,5-7``; ``%3`` behind it: at most three elements are under way at once."""
    listed, percent, limit = text.partition("%")
    indices: set[int] = set()
    for part in listed.split(","):
        match = _PART.fullmatch(part.strip())
        if match is None:
            raise ValueError(shown(text))
        first, last, step = int(match[1]), int(match[2] or match[1]), int(match[3] or 1)
        if first > last or last > MAX_INDEX or step == 0:
            raise ValueError(shown(text))
        indices.update(range(first, last + 1, step))
        if len(indices) > MAX_JOBS:
            raise ValueError(f"{shown(text)}, more than {MAX_JOBS:,} elements")
    if percent and (re.fullmatch("[0-9]{1,7}", limit) is None or int(limit) == 0):
        raise ValueError(shown(text))
    return Array(tuple(sorted(indices)), int(limit) if percent else None)


def check_array(array: Any) -> str:
    """The text of an array, without blanks; one index may be a number."""
    text = str(array) if isinstance(array, int) and not isinstance(array, bool) else array
    if not isinstance(text, str) or len(text) > 10_000:
        raise ValueError(shown(array))
    text = "".join(text.split())
    if text:
        parse_array(text)
    return text
