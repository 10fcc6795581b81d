"""The paths of a job's logs: bytes of a file as they are, from an offset, to the end or for as long as the job lives;
and where its last lines begin."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from trine.executor.base import JobLog
from trine.server.api.answers import caller_of
from trine.server.api.errors import documented
from trine.server.api.jobs import JobId
from trine.server.api.watches import Watches
from trine.server.interface import Caller, NotFound, OpenLog, Service

CHUNK_BYTES = 65_536
TAIL_BYTES = 64 << 20
"""How far back lines are looked for: a log without line ends must not be read as a whole for them."""
_FARTHEST = 2**53
Offset = Annotated[
    int, Query(description="First byte; negative counts from the end of the log.", ge=-_FARTHEST, le=_FARTHEST)
]
Follow = Annotated[bool, Query(description="Keep sending what the job writes until it ended.")]

Rank = Annotated[int, Query(description="Whose output; rank 0 by default.", ge=0, le=1_000_000)]
Lines = Annotated[int, Query(description="How many lines from the end.", ge=0, le=1_000_000_000)]


class LogOffset(BaseModel):
    """A place in a log."""

    offset: int = Field(description="First byte of the lines that were asked for.", examples=[4096])


class LogRoute:
    """The handlers of ``GET /v1/jobs/{id}/log`` and ``.../log/offset``."""

    def __init__(self, service: Service, watches: Watches) -> None:
        self._service, self._watches = service, watches

    def add_to(self, router: APIRouter) -> None:
        text = {"description": "The log.", "content": {"text/plain": {"schema": {"type": "string"}}}}
        router.add_api_route(
            "/v1/jobs/{job_id}/log",
            self.log,
            methods=["GET"],
            tags=["jobs"],
            response_class=StreamingResponse,
            responses={200: text, **documented(401, 404, 422, 503)},
        )
        router.add_api_route(
            "/v1/jobs/{job_id}/log/offset",
            self.offset,
            methods=["GET"],
            tags=["jobs"],
            response_model=LogOffset,
            responses=documented(401, 404, 422, 503),
        )

    async def log(
        self, request: Request, job_id: JobId, offset: Offset = 0, follow: Follow = False, rank: Rank = 0
    ) -> Response:
        """What one rank of the job wrote to its standard output and error, over all its attempts."""
        log = LogReader(self._service.job_log(job_id, caller_of(request), rank), offset)
        if follow:
            self._watches.check_room(caller_of(request))
        parts = self._follow(log, job_id, request) if follow else log.parts()
        headers = {"X-Content-Type-Options": "nosniff"}
        return StreamingResponse(parts, headers=headers, media_type="text/plain; charset=utf-8")

    async def offset(self, request: Request, job_id: JobId, tail: Lines, rank: Rank = 0) -> LogOffset:
        """Where the last `tail` lines of a log begin; at most 64 MB before its end."""
        opens = self._service.job_log(job_id, caller_of(request), rank)
        return LogOffset(offset=await asyncio.to_thread(tail_offset, opens, tail))

    async def _follow(self, log: LogReader, job_id: str, request: Request) -> AsyncIterator[bytes]:
        with self._watches.one(caller_of(request)):
            while True:
                # Asked before reading: what was written before the end is then read for certain.
                ended = self._ended(job_id, caller_of(request))
                async for part in log.parts():
                    yield part
                if ended or not await self._watches.next_look(math.inf, request):
                    return

    def _ended(self, job_id: str, caller: Caller) -> bool:
        try:
            return self._service.ended(job_id, caller)
        except NotFound:
            return True


class LogReader:
    """A log that is read on from where it was left; ``offset`` may be negative until the log exists."""

    def __init__(self, opens: OpenLog, offset: int) -> None:
        self._open, self._offset = opens, offset

    async def parts(self) -> AsyncIterator[bytes]:
        """What there is between the offset and the present end of the log."""
        log = await asyncio.to_thread(self._open)
        if log is None:
            return
        try:
            size = log.size()
            if self._offset < 0:
                self._offset = max(0, size + self._offset)
            while part := await asyncio.to_thread(log.read, self._offset, self._wanted(size)):
                self._offset += len(part)
                yield part
        finally:
            log.close()

    def _wanted(self, size: int) -> int:
        return max(0, min(CHUNK_BYTES, size - self._offset))


def tail_offset(opens: OpenLog, lines: int) -> int:
    """First byte of the last ``lines`` lines, the last of which may lack its end; 0 if there is no log."""
    log = opens()
    if log is None:
        return 0
    try:
        return _back(log, log.size(), lines)
    finally:
        log.close()


def _back(log: JobLog, size: int, lines: int) -> int:
    if not lines or not size:
        return size
    # The end of the last line ends a line and begins none.
    end, first, left = size - 1, max(0, size - TAIL_BYTES), lines
    while end > first:
        begin = max(first, end - CHUNK_BYTES)
        part = log.read(begin, end - begin)
        found = part.count(b"\n")
        if found >= left:
            return begin + _nth_last(part, left) + 1
        left, end = left - found, begin
    return first


def _nth_last(part: bytes, n: int) -> int:
    """Where the ``n``-th line end from the end of ``part`` is; there are that many."""
    at = len(part)
    for _ in range(n):
        at = part.rindex(b"\n", 0, at)
    return at
