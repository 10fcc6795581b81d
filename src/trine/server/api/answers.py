"""What all paths share: values of the service as JSON bodies, the caller of a request, names in paths and queries."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection
from typing import Any, TypeVar

from pydantic import TypeAdapter
from starlette.requests import Request
from starlette.responses import Response

from trine.core.errors import nearest
from trine.server.api.errors import ApiError
from trine.server.interface import (
    Caller,
    Collected,
    DaemonView,
    Explanation,
    HistoryRow,
    JobView,
    NodeView,
    QuotaView,
    ShareView,
    SpeedView,
    UsageView,
)

T = TypeVar("T")

ID = r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$"
NODE_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$"
"""Names in paths: nothing that means something to a file system, a terminal or a log."""


def _answer(kind: type[T]) -> Callable[[T], Response]:
    dump = TypeAdapter(kind).dump_json
    return lambda value: Response(dump(value), media_type="application/json")


job_answer = _answer(JobView)
jobs_answer = _answer(list[JobView])
explanation_answer = _answer(Explanation)
history_answer = _answer(list[HistoryRow])
collected_answer = _answer(Collected)
node_answer = _answer(NodeView)
quotas_answer = _answer(list[QuotaView])
nodes_answer = _answer(list[NodeView])
daemon_answer = _answer(DaemonView)
speed_answer = _answer(SpeedView)
shares_answer = _answer(list[ShareView])
usage_answer = _answer(UsageView)


def caller_of(request: Request) -> Caller:
    """The caller that the gate let in."""
    caller: Caller = request.scope["caller"]
    return caller


def check_admin(request: Request) -> None:
    """Raises unless the caller is an administrator."""
    if not caller_of(request).admin:
        raise ApiError("forbidden", "Only an administrator may do this.")


def whole(value: Any) -> Any:
    """JSON has one kind of number: 3.0 is 3."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def known_query(request: Request) -> None:
    """Refuse parameters in the query that the path does not have, as a misspelt one would be ignored."""
    known = inspect.signature(request.scope["endpoint"]).parameters.keys() - request.path_params.keys() - {"request"}
    for name in request.query_params:
        if name not in known:
            raise unknown_parameter(name, known)


def unknown_parameter(name: str, known: Collection[str]) -> ApiError:
    expected = f"expected {', '.join(sorted(known))}" if known else "expected none"
    return ApiError("invalid", f"Unknown parameter {name[:60]!a}{nearest(name[:60], known)}; {expected}.", "query")
