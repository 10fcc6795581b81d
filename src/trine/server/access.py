"""Which user may submit what: queues, users and their limits from the daemon's configuration; checks at submission.

Weights and ``max_gpus`` of what runs at once are the scheduler's to apply; whether a job can ever run is too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from trine.core.errors import InputError, nearest, unknown_name
from trine.executor.accounts import has_root_rights, is_system_user
from trine.executor.faults import describe
from trine.inputs.job_rules import MAX_GPUS, MAX_RETRIES
from trine.inputs.job_spec import JobSpec
from trine.inputs.yaml_reader import Mapping as Keys
from trine.inputs.yaml_reader import read_mapping
from trine.server.interface import Caller, Refused, Unavailable

DEFAULT_QUEUE = "default"
_MAX_COUNT = 10_000_000


@dataclass(frozen=True, slots=True)
class Queue:
    """A queue; ``None`` means no limit, and ``users`` ``None`` means any user."""

    name: str
    weight: float = 1.0
    max_gpus: int | None = None
    """GPUs that jobs of the queue may hold together."""
    max_waiting: int | None = None
    max_priority: float | None = None
    """Highest priority that users may ask for; administrators may ask for any."""
    users: frozenset[str] | None = None
    retries: int = 0
    """How often a job that fails by itself is started again, where the job does not say."""


@dataclass(frozen=True, slots=True)
class UserLimits:
    """Limits of one user over all queues; ``None`` means no limit."""

    max_gpus: int | None = None
    max_waiting: int | None = None


_NO_LIMITS = UserLimits()


@dataclass(frozen=True, slots=True)
class WaitingJobs:
    """Jobs that wait now (held ones count), by queue and by user."""

    by_queue: Mapping[str, int] = field(default_factory=dict)
    by_user: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Access:
    """The configuration, and what follows from it. As it comes: one queue, open to all, without limits."""

    queues: Mapping[str, Queue] = field(default_factory=lambda: {DEFAULT_QUEUE: Queue(DEFAULT_QUEUE)})
    users: Mapping[str, UserLimits] = field(default_factory=dict)
    default_queue: str = DEFAULT_QUEUE
    runs_as_user: bool = False
    """The daemon is root and starts each job as its user."""
    is_user: Callable[[str], bool] = is_system_user
    is_root: Callable[[str], bool] = has_root_rights
    blocked: Callable[[str], str] = lambda _: ""
    """The directory that keeps jobs of a user from their own below the state directory; empty if none does."""

    def admit(self, specs: Collection[JobSpec], caller: Caller, waiting: WaitingJobs) -> list[JobSpec]:
        """The jobs with queue, user and the queue's retries filled in, or ``Refused`` for all of them."""
        admitted = [self._admit_one(spec, caller) for spec in specs]
        self._check_waiting(admitted, waiting)
        return admitted

    @property
    def limits_waiting(self) -> bool:
        """The waiting jobs of some queue or user are limited in number."""
        limits = [queue.max_waiting for queue in self.queues.values()]
        limits += [user.max_waiting for user in self.users.values()]
        return any(limit is not None for limit in limits)

    def limits(self, user: str) -> UserLimits:
        return self.users.get(user, _NO_LIMITS)

    def with_max_gpus(self, changed: Mapping[str, int | None]) -> Access:
        """As this, with other numbers of GPUs for ``queue:NAME`` and ``user:NAME``; ``None``: no limit."""
        queues, users = dict(self.queues), dict(self.users)
        for subject, max_gpus in changed.items():
            kind, _, name = subject.partition(":")
            if kind == "user":
                users[name] = replace(self.limits(name), max_gpus=max_gpus)
            elif name in queues:  # a quota of a queue that is not configured any more limits no job
                queues[name] = replace(queues[name], max_gpus=max_gpus)
        return replace(self, queues=queues, users=users)

    def check_priority(self, priority: float, queue_name: str, caller: Caller) -> None:
        """``Refused`` if the caller may not have jobs of this priority in the queue."""
        queue = self.queues.get(queue_name)
        if queue is None or queue.max_priority is None or caller.admin:
            return
        if priority > queue.max_priority:
            message = f"Priority {priority:g} is above {queue.max_priority:g}, the highest in queue {queue.name}."
            raise Refused("forbidden", message)

    def _admit_one(self, spec: JobSpec, caller: Caller) -> JobSpec:
        queue = self._queue(spec.queue or self.default_queue)
        user = self._user(spec.user or caller.user, caller)
        if queue.users is not None and user not in queue.users and not caller.admin:
            raise Refused("forbidden", f"User {user} may not submit to queue {queue.name}.")
        self.check_priority(spec.priority, queue.name, caller)
        self._check_size(spec, queue, user)
        filled: dict[str, object] = {"queue": queue.name, "user": user}
        if spec.retries is None and queue.retries:
            filled["retries"] = queue.retries
        return spec.model_copy(update=filled)

    def _queue(self, name: str) -> Queue:
        queue = self.queues.get(name)
        if queue is None:
            known = ", ".join(sorted(self.queues))
            raise Refused("unknown-queue", f"There is no queue {name!r}{nearest(name, self.queues)}; there is {known}.")
        return queue

    def _user(self, user: str, caller: Caller) -> str:
        if user != caller.user and not caller.admin:
            raise Refused("forbidden", f"User {caller.user} may not submit jobs of user {user}.")
        if self.runs_as_user:
            try:
                self._check_account(user, caller)
            except OSError as error:  # no descriptors: the machine cannot say which users it knows
                raise Unavailable(f"User {user} cannot be looked up now: {describe(error)}.") from error
        return user

    def _check_account(self, user: str, caller: Caller) -> None:
        """The account as which the job would run exists, is allowed, and reaches its directories."""
        if self.is_root(user) and not (caller.admin and caller.user == "root"):
            raise Refused("forbidden", "Jobs of root can only be submitted with the daemon's own token.")
        if not self.is_user(user):
            raise Refused("unknown-user", f"This machine knows no user {user!r}, as whom the job would run.")
        if directory := self.blocked(user):
            message = f"{user} may not pass through {directory} to the daemon's state directory; ask for another."
            raise Refused("unreachable", f"Jobs of {user} cannot run: {message}")

    def _check_size(self, spec: JobSpec, queue: Queue, user: str) -> None:
        for limit, whose in ((queue.max_gpus, f"queue {queue.name}"), (self.limits(user).max_gpus, f"user {user}")):
            if limit is not None and spec.gpus.count > limit:
                message = f"The job asks for {spec.gpus.count} GPUs, but {whose} may use {limit} at once."
                raise Refused("quota", message)

    def _check_waiting(self, specs: list[JobSpec], waiting: WaitingJobs) -> None:
        for name, more in Counter(spec.queue for spec in specs).items():
            _check_room(f"Queue {name}", self.queues[name].max_waiting, waiting.by_queue.get(name, 0), more)
        for user, more in Counter(spec.user for spec in specs).items():
            _check_room(f"User {user}", self.limits(user).max_waiting, waiting.by_user.get(user, 0), more)


def _check_room(whose: str, limit: int | None, waiting: int, more: int) -> None:
    if limit is not None and waiting + more > limit:
        message = f"{whose} has {waiting} jobs waiting, and {more} more would exceed the limit of {limit}."
        raise Refused("quota", message)


def read_access(path: str | Path, runs_as_user: bool = False) -> Access:
    """The queues and users of a configuration file: ``queues``, ``users`` and ``default_queue``."""
    top = read_mapping(path, "a daemon configuration file")
    access = access_of(top, runs_as_user)
    top.get("webhook")  # the daemon's, see ``server.configuration``
    top.finish()
    return access


def access_of(top: Keys, runs_as_user: bool = False) -> Access:
    """As ``read_access`` for the keys of an open file that may hold more than these; the caller calls ``finish``."""
    queues = {name: _read_queue(name, keys) for name, keys in _named(top, "queues")}
    queues = queues or {DEFAULT_QUEUE: Queue(DEFAULT_QUEUE)}
    default = top.text("default_queue", DEFAULT_QUEUE if DEFAULT_QUEUE in queues else next(iter(queues)))
    if default not in queues:
        raise unknown_name(top.value("default_queue").where, "queue", default, queues, "default_queue")
    users = {name: _read_user(keys) for name, keys in _named(top, "users")}
    return Access(queues, users, default, runs_as_user)


def _named(top: Keys, key: str) -> list[tuple[str, Keys | None]]:
    """The names below ``key`` with their keys; ``name:`` alone means everything by default."""
    section = top.mapping(key, None)
    if section is None:
        return []
    return [(name, None if value.is_null else value.mapping()) for name, value in section.values()]


def _count(keys: Keys, key: str, maximum: int = _MAX_COUNT) -> int | None:
    return keys.integer(key, None, minimum=0, maximum=maximum)


def _read_queue(name: str, keys: Keys | None) -> Queue:
    _check_name(name, keys)
    if keys is None:
        return Queue(name)
    return Queue(
        name,
        weight=keys.number("weight", 1.0, above=0, maximum=1e6),
        max_gpus=_count(keys, "max_gpus", MAX_GPUS),
        max_waiting=_count(keys, "max_waiting"),
        max_priority=keys.number("max_priority", None, minimum=-1e6, maximum=1e6),
        users=_read_names(keys),
        retries=keys.integer("retries", 0, minimum=0, maximum=MAX_RETRIES),
    )


def _check_name(name: str, keys: Keys | None) -> None:
    try:
        JobSpec.model_validate({"run": ("true",), "queue": name})
    except ValueError:
        where = keys.where if keys else "queues"
        raise InputError(where, f"found queue {name!r}", "up to 64 letters, digits and . : + _ -", "queues") from None


def _read_names(keys: Keys) -> frozenset[str] | None:
    users = keys.get("users")
    if users is None or (users.is_scalar and users.text() == "any"):
        return None
    if users.is_scalar or users.is_mapping:
        raise users.wrong("any or a list of users")
    return frozenset(user.text() for user in users.list())


def _read_user(keys: Keys | None) -> UserLimits:
    if keys is None:
        return _NO_LIMITS
    return UserLimits(max_gpus=_count(keys, "max_gpus", MAX_GPUS), max_waiting=_count(keys, "max_waiting"))
