"""Quotas that were changed while the daemon ran: they hold before those of its configuration file, until they are given
back to it. Pure: what may be changed, what holds then, and how it is shown; the verb is in ``server.service``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from trine.core.errors import nearest
from trine.engine.quotas import Quotas
from trine.inputs.job_rules import MAX_GPUS
from trine.inputs.job_spec import JobSpec
from trine.server.access import Access
from trine.server.interface import Caller, NotFound, QuotaView, Refused

AS_CONFIGURED: Literal["default"] = "default"
"""In place of a number of GPUs: what the configuration file says, from now on."""
Asked = int | Literal["default"] | None
"""GPUs at most; ``None``: no limit."""
_NAMED = "user:NAME or queue:NAME"


@dataclass(frozen=True, slots=True)
class QuotaChange:
    """What was asked for: GPUs at most (``None``: no limit), at ``at_s``, Unix seconds."""

    max_gpus: int | None
    by: str
    at_s: float


def quotas_now(configured: Quotas, changed: Mapping[str, QuotaChange]) -> Quotas:
    """What queues and users may hold at most."""
    if not changed:
        return configured
    limits = {"queue": dict(configured.by_group), "user": dict(configured.by_user)}
    for subject, change in changed.items():
        kind, _, name = subject.partition(":")
        if change.max_gpus is None:
            limits[kind].pop(name, None)
        else:
            limits[kind][name] = change.max_gpus
    return Quotas(limits["queue"], limits["user"])


def access_now(access: Access, changed: Mapping[str, QuotaChange]) -> Access:
    """The configuration with the quotas that hold now, for submissions and for what people are shown."""
    limits = {subject: change.max_gpus for subject, change in changed.items()}
    return access.with_max_gpus(limits) if limits else access


def check_changes(access: Access, asked: Mapping[str, Asked], caller: Caller) -> None:
    """``Refused`` if the caller may not change quotas, or if one of them makes no sense."""
    if not caller.admin:
        raise Refused("not-admin", "only the owner of the daemon may change quotas")
    for subject, max_gpus in asked.items():
        kind, _, name = subject.partition(":")
        if kind == "queue" and name not in access.queues:
            known = ", ".join(sorted(access.queues))
            raise NotFound(f"there is no queue {name!r}{nearest(name, access.queues)}; there is {known}")
        if kind not in ("user", "queue") or (kind == "user" and not _is_user(name)):
            raise Refused("invalid", f"a quota of {subject!r}; expected {_NAMED}")
        if isinstance(max_gpus, int) and not 0 <= max_gpus <= MAX_GPUS:
            raise Refused("invalid", f"a quota of {max_gpus} GPUs; expected a whole number from 0 to {MAX_GPUS:,}")


def _is_user(name: str) -> bool:
    try:
        return JobSpec.model_validate({"run": ("true",), "user": name}).user == name != ""
    except ValueError:
        return False


def quota_views(access: Access, changed: Mapping[str, QuotaChange], caller: Caller) -> list[QuotaView]:
    """Every queue, and the users with a quota that the caller may see, as they are now and as they are configured."""
    configured = {f"queue:{name}": queue.max_gpus for name, queue in access.queues.items()}
    configured |= {f"user:{name}": of.max_gpus for name, of in access.users.items() if of.max_gpus is not None}
    found = []
    for subject in sorted({*configured, *changed}):
        kind, _, name = subject.partition(":")
        if kind == "user" and not caller.sees(name):
            continue
        stated, change = configured.get(subject), changed.get(subject)
        if change is None:
            found.append(QuotaView(kind, name, stated, stated))
        else:
            found.append(QuotaView(kind, name, change.max_gpus, stated, change.by, change.at_s))
    return found
