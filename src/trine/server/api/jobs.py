"""The paths of jobs, except submission and logs."""

from __future__ import annotations

import asyncio
import math
from typing import Annotated, Any, Literal, get_args

from fastapi import APIRouter, Path, Query
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.requests import Request
from starlette.responses import Response

from trine.inputs.job_rules import EXPECTED, MAX_PRIORITY
from trine.server.api.answers import ID, caller_of, explanation_answer, history_answer, job_answer, jobs_answer
from trine.server.api.errors import ApiError, documented
from trine.server.api.watches import Watches, still_known
from trine.server.interface import (
    LIVE_STATES,
    MAX_HISTORY_PAGE,
    Explanation,
    HistoryQuery,
    HistoryRow,
    JobState,
    JobView,
    Service,
)

JobId = Annotated[str, Path(description="The id that the submission returned.", pattern=ID, examples=["17"])]
StateName = Literal[
    "waiting",
    "held",
    "set aside",
    "starting",
    "running",
    "stopping",
    "done",
    "failed",
    "cancelled",
    "timed out",
    "live",
    "ended",
    "all",
]
EndedName = Literal["done", "failed", "cancelled", "timed out"]
States = Annotated[
    list[StateName],
    Query(
        description="States to list; may be given several times. `live` are all that can still change.", max_length=16
    ),
]
UserName = Annotated[str, Query(description="Only jobs of this user.", max_length=64)]
JobName = Annotated[str, Query(description="Only jobs of this name; `*` and `?` are wildcards.", max_length=128)]
_ALL: frozenset[str] = frozenset(get_args(JobState))
_GROUPS = {"live": LIVE_STATES, "ended": _ALL - LIVE_STATES, "all": _ALL}
_READ = documented(401, 404, 422, 503)
_CHANGE = documented(401, 403, 404, 409, 422, 503)


class JobCount(BaseModel):
    """How many jobs there are."""

    count: int = Field(examples=[1200])


class Priority(BaseModel):
    """Which jobs go first."""

    model_config = ConfigDict(extra="forbid", strict=True)

    priority: float = Field(ge=-MAX_PRIORITY, le=MAX_PRIORITY, description=EXPECTED["priority"], examples=[5])


_PRIORITY_BODY = {"required": True, "content": {"application/json": {"schema": Priority.model_json_schema()}}}
_EXPECTED_PRIORITY = f'Expected a body such as {{"priority": 5}}: {EXPECTED["priority"]}.'


class JobRoutes:
    """Handlers; each asks the service and turns the value into JSON."""

    def __init__(self, service: Service, watches: Watches) -> None:
        self._service, self._watches = service, watches

    def add_to(self, router: APIRouter) -> None:
        get: dict[str, Any] = {"methods": ["GET"], "responses": _READ, "tags": ["jobs"]}
        post: dict[str, Any] = {"methods": ["POST"], "responses": _CHANGE, "tags": ["jobs"], "response_model": JobView}
        add = router.add_api_route
        add("/v1/jobs", self.list_jobs, response_model=list[JobView], **{**get, "responses": documented(401, 422, 503)})
        counted = {**get, "responses": documented(401, 422, 503)}
        add("/v1/jobs/count", self.count, response_model=JobCount, **counted)  # before the ids: no job has this one
        add("/v1/history", self.history, response_model=list[HistoryRow], **counted)
        add("/v1/jobs/{job_id}", self.show, response_model=JobView, **get)
        add("/v1/jobs/{job_id}/explain", self.explain, response_model=Explanation, **get)
        add("/v1/jobs/{job_id}/wait", self.wait, response_model=JobView, **get)
        add("/v1/jobs/{job_id}/cancel", self.cancel, **post)
        add("/v1/jobs/{job_id}/hold", self.hold, **post)
        add("/v1/jobs/{job_id}/release", self.release, **post)
        sized = {**post, "responses": documented(401, 403, 404, 409, 413, 422, 503)}
        add("/v1/jobs/{job_id}/priority", self.set_priority, openapi_extra={"requestBody": _PRIORITY_BODY}, **sized)

    async def list_jobs(
        self,
        request: Request,
        state: States = ["live"],  # noqa: B006 (FastAPI copies defaults)
        limit: Annotated[int, Query(description="At most this many.", ge=1, le=100_000)] = 1_000,
        user: UserName = "",
        name: JobName = "",
    ) -> Response:
        """The caller's jobs (an administrator sees everyone's): running ones first, then waiting by rank."""
        return jobs_answer(self._service.jobs(caller_of(request), _states(state), limit, user, name))

    async def count(
        self,
        request: Request,
        state: States = ["live"],  # noqa: B006 (FastAPI copies defaults)
        user: UserName = "",
        name: JobName = "",
    ) -> JobCount:
        """How many jobs a list without a limit would hold."""
        return JobCount(count=self._service.count(caller_of(request), _states(state), user, name))

    async def history(
        self,
        request: Request,
        since_s: Annotated[float, Query(description="Only jobs that ended from this Unix time on.", ge=0)] = 0.0,
        until_s: Annotated[float | None, Query(description="Only jobs that ended before this Unix time.", ge=0)] = None,
        user: UserName = "",
        state: Annotated[EndedName | None, Query(description="Only jobs that ended so.")] = None,
        after: Annotated[
            str, Query(description="The id of the last job of the page before.", pattern="^[0-9]{0,18}$")
        ] = "",
        limit: Annotated[int, Query(description="At most this many.", ge=1, le=MAX_HISTORY_PAGE)] = MAX_HISTORY_PAGE,
    ) -> Response:
        """Ended jobs with the GPU time they used, in order of submission, a page at a time: an empty one is the end."""
        until = math.inf if until_s is None else until_s
        asked = HistoryQuery(since_s, until, user, state or "", after, limit)
        return history_answer(self._service.history(asked, caller_of(request)))

    async def show(self, request: Request, job_id: JobId) -> Response:
        """One job."""
        return job_answer(self._service.job(job_id, caller_of(request)))

    async def explain(self, request: Request, job_id: JobId) -> Response:
        """Why the job waits, what would change that, or why it runs where it runs; and its story."""
        return explanation_answer(self._service.explain(job_id, caller_of(request)))

    async def cancel(self, request: Request, job_id: JobId) -> Response:
        """Stop the job for good."""
        return job_answer(await self._service.cancel(job_id, caller_of(request)))

    async def hold(self, request: Request, job_id: JobId) -> Response:
        """Keep the job from starting until it is released; a running job is stopped with its grace period."""
        return job_answer(await self._service.hold(job_id, caller_of(request)))

    async def release(self, request: Request, job_id: JobId) -> Response:
        """End a hold."""
        return job_answer(await self._service.release(job_id, caller_of(request)))

    async def set_priority(self, request: Request, job_id: JobId) -> Response:
        """Give a job that has not ended another priority; users within what its queue allows."""
        try:
            asked = Priority.model_validate_json(request.scope["body"])
        except ValidationError:
            raise ApiError("invalid", _EXPECTED_PRIORITY, "priority") from None
        return job_answer(await self._service.set_priority(job_id, asked.priority, caller_of(request)))

    async def wait(
        self,
        request: Request,
        job_id: JobId,
        timeout_s: Annotated[float, Query(description="Answer after this long at the latest.", ge=0, le=86_400)] = 60.0,
    ) -> Response:
        """The job once it ended, or as it is after `timeout_s` (or earlier: the state tells); then ask again."""
        caller = caller_of(request)
        ended = self._service.ended(job_id, caller)
        until_s = asyncio.get_running_loop().time() + min(timeout_s, self._watches.longest_s)
        with self._watches.one(caller):
            while not ended and await self._watches.next_look(until_s, request):
                ended = self._service.ended(job_id, caller)
        if not still_known(request):
            raise ApiError("unauthorized", "The token was revoked.", "Authorization")
        return job_answer(self._service.job(job_id, caller))


def _states(names: list[StateName]) -> frozenset[str]:
    return frozenset[str]().union(*(_GROUPS.get(name, {name}) for name in names))
