"""The paths of the dashboard: the board with what changes on it, and why jobs are where they are."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from trine.server.api.answers import ID, caller_of, shares_answer, speed_answer, usage_answer
from trine.server.api.errors import documented
from trine.server.api.feed import Feed
from trine.server.api.jobs import JobId
from trine.server.api.watches import Watches
from trine.server.interface import ReasonView, Service, ShareView, SpeedView, UsageView

HEARTBEAT_S = 5.0
"""At least so often something is sent, so that both sides notice a connection that is dead."""
_MOST_REASONS = 200
Since = Annotated[str, Query(description="The id of the last event that was seen.", max_length=40)]
JobIds = Annotated[list[Annotated[str, Query(pattern=ID)]], Query(max_length=_MOST_REASONS)]


class Reasons(BaseModel):
    """Reasons by job id; jobs that the caller cannot see are left out."""

    reasons: dict[str, ReasonView]


class BoardRoutes:
    """Handlers of ``/v1/board``."""

    def __init__(self, service: Service, watches: Watches) -> None:
        self._service, self._watches, self.feed = service, watches, Feed(service.board)

    def add_to(self, router: APIRouter) -> None:
        events = {"description": "Events `snapshot` and `change`.", "content": {"text/event-stream": {}}}
        router.add_api_route(
            "/v1/board/events",
            self.events,
            methods=["GET"],
            tags=["dashboard"],
            response_class=StreamingResponse,
            responses={200: events, **documented(401, 422, 503)},
        )
        read: dict[str, Any] = {"methods": ["GET"], "tags": ["dashboard"], "responses": documented(401, 503)}
        router.add_api_route("/v1/shares", self.shares, response_model=list[ShareView], **read)
        router.add_api_route("/v1/usage", self.usage, response_model=UsageView, **read)
        one = {**read, "responses": documented(401, 404, 422, 503)}
        router.add_api_route("/v1/jobs/{job_id}/speed", self.speed, response_model=SpeedView, **one)
        common: dict[str, Any] = {"methods": ["GET"], "tags": ["dashboard"], "responses": documented(401, 422, 503)}
        router.add_api_route("/v1/board/reasons", self.reasons, response_model=Reasons, **common)

    async def events(
        self, request: Request, since: Since = "", follow: Annotated[bool, Query(description="Keep sending.")] = True
    ) -> Response:
        """The cluster and the caller's jobs as one event, then what changes, as server-sent events.

        It ends after some minutes; ask again with the id of the last event."""
        self._watches.check_room(caller_of(request))
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        parts = self._parts(request, since, follow)
        return StreamingResponse(parts, headers=headers, media_type="text/event-stream")

    async def _parts(self, request: Request, since: str, follow: bool) -> AsyncIterator[bytes]:
        with self._watches.one(caller_of(request)):
            quiet = 0
            until_s = asyncio.get_running_loop().time() + self._watches.longest_s
            while True:
                since, events = self.feed.news(caller_of(request), since)
                quiet = 0 if events else quiet + 1
                if events or quiet * self._watches.look_every_s >= HEARTBEAT_S:
                    quiet = 0
                    yield events or b": still here\n\n"
                if not follow or not await self._watches.next_look(until_s, request):
                    return

    async def speed(self, request: Request, job_id: JobId) -> Response:
        """How fast the job runs against what is expected of it, and how old its checkpoint is."""
        return speed_answer(self._service.speed(job_id, caller_of(request)))

    async def shares(self, request: Request) -> Response:
        """Queues and users: the share promised, the share received, and their limits."""
        return shares_answer(self._service.shares(caller_of(request)))

    async def usage(self, request: Request) -> Response:
        """The cluster over the past week: use, queue, waits, slowdowns, preemptions."""
        return usage_answer(self._service.usage(caller_of(request)))

    async def reasons(self, request: Request, job: JobIds = []) -> Response:  # noqa: B006 (FastAPI copies defaults)
        """Why jobs wait or run where they do, by their ids."""
        return Response(
            Reasons(reasons=self._service.reasons(job, caller_of(request))).model_dump_json(),
            media_type="application/json",
        )
