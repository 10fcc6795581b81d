"""The two paths that running attempts call where they share no file system with the daemon: news of a part, and the
step after which all ranks leave. Not for people: a token is that of one attempt, and opens nothing else."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Any

from starlette.responses import JSONResponse, Response
from starlette.types import Scope

from trine.executor.base import AttemptRelay
from trine.server.api.errors import ApiError
from trine.server.api.gate import Shortcuts

EXCHANGE, AGREE = "/v1/attempt/exchange", "/v1/attempt/agree"
_UNKNOWN = "The token is of no attempt that runs, or the request makes no sense."


def attempt_paths(relay: AttemptRelay | None) -> Shortcuts:
    """Handlers for the gate; none where no attempt uses them."""
    if relay is None:
        return {}
    return {("POST", EXCHANGE): _handler(relay.exchange), ("POST", AGREE): _handler(relay.agree)}


def _handler(
    call: Callable[[str, Mapping[str, Any]], dict[str, Any] | None],
) -> Callable[[Scope], Any]:
    async def answer(scope: Scope) -> Response:
        try:
            request = json.loads(scope["body"])
        except (ValueError, RecursionError):
            request = None
        # Files are read and written: not in the loop that all requests share.
        found = await asyncio.to_thread(call, scope["token"], request) if isinstance(request, dict) else None
        if found is None:
            raise ApiError("unauthorized", _UNKNOWN, "Authorization")
        return JSONResponse(found)

    return answer
