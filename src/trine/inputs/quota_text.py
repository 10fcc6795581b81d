"""A quota as people write it: ``user:ann=16``, ``queue:prod=none``."""

from __future__ import annotations

import re

_QUOTA = re.compile(r"((?:user|queue):[A-Za-z0-9][A-Za-z0-9.:+_-]{0,63})=(?:(\d{1,9})|(none)|default)")
QUOTA_FORM = "user:NAME=GPUS or queue:NAME=GPUS; none for no limit, default for what is configured"


def parse_quota(text: str) -> tuple[str, int | str | None]:
    """``user:NAME`` or ``queue:NAME``, and GPUs at most; ``None``: no limit, ``default``: as configured.

    ``ValueError`` if it is no quota."""
    found = _QUOTA.fullmatch(text)
    if found is None:
        raise ValueError(text)
    if found[2]:
        return found[1], int(found[2])
    return found[1], None if found[3] else "default"
