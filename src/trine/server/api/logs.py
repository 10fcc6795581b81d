"""The path of a job's log: bytes of a file as they are, from an offset, to the end or for as long as the job lives."""

from __future__ import annotations

import asyncio
import math
import os
import stat
from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from trine.server.api.answers import caller_of
from trine.server.api.errors import documented
from trine.server.api.jobs import JobId
from trine.server.api.watches import Watches
from trine.server.service import LIVE_STATES, Caller, NotFound, Service

CHUNK_BYTES = 65_536
_FARTHEST = 2**53
Offset = Annotated[
    int, Query(description="First byte; negative counts from the end of the log.", ge=-_FARTHEST, le=_FARTHEST)
]
Follow = Annotated[bool, Query(description="Keep sending what the job writes until it ended.")]


class LogRoute:
    """The handler of ``GET /v1/jobs/{id}/log``."""

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

    async def log(self, request: Request, job_id: JobId, offset: Offset = 0, follow: Follow = False) -> Response:
        """What the job wrote to its standard output and error, over all its attempts."""
        log = Log(self._service.log_path(job_id, caller_of(request)), offset)
        if follow:
            self._watches.check_room()
        parts = self._follow(log, job_id, request) if follow else log.parts()
        headers = {"X-Content-Type-Options": "nosniff"}
        return StreamingResponse(parts, headers=headers, media_type="text/plain; charset=utf-8")

    async def _follow(self, log: Log, job_id: str, request: Request) -> AsyncIterator[bytes]:
        with self._watches.one():
            while True:
                # Asked before reading: what was written before the end is then read for certain.
                ended = self._ended(job_id, caller_of(request))
                async for part in log.parts():
                    yield part
                if ended or not await self._watches.next_look(math.inf, request):
                    return

    def _ended(self, job_id: str, caller: Caller) -> bool:
        try:
            return self._service.job(job_id, caller).state not in LIVE_STATES
        except NotFound:
            return True


class Log:
    """A log file that is read on from where it was left; ``offset`` may be negative until the file exists."""

    def __init__(self, path: str, offset: int) -> None:
        self._path, self._offset = path, offset

    async def parts(self) -> AsyncIterator[bytes]:
        """What there is between the offset and the file's present end."""
        descriptor = await asyncio.to_thread(_open, self._path)
        if descriptor is None:
            return
        try:
            size = os.fstat(descriptor).st_size
            if self._offset < 0:
                self._offset = max(0, size + self._offset)
            while part := await asyncio.to_thread(os.pread, descriptor, self._wanted(size), self._offset):
                self._offset += len(part)
                yield part
        finally:
            os.close(descriptor)

    def _wanted(self, size: int) -> int:
        return max(0, min(CHUNK_BYTES, size - self._offset))


def _open(path: str) -> int | None:
    """A job may own its log: a link or a pipe put there in its place is not opened as if it were one."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    return None
