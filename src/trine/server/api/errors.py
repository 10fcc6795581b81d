"""Refusals as HTTP: which status belongs to which code, and the one shape of every error body."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from trine.core.errors import InputError
from trine.server.interface import Refused


class ErrorView(BaseModel):
    """Every error has this body."""

    model_config = ConfigDict(extra="forbid")

    code: str = Field(description="A stable name of the error, for programs.", examples=["not-found"])
    message: str = Field(description="One sentence for people.", examples=["There is no job 17."])
    field: str = Field(default="", description="The key, parameter or header concerned, if there is one.")


STATUS = {
    "unauthorized": 401,
    "forbidden": 403,
    "not-admin": 403,
    "not-found": 404,
    "no-such-path": 404,
    "method-not-allowed": 405,
    "timeout": 408,
    "conflict": 409,
    "body-too-large": 413,
    "misdirected": 421,
    "invalid": 422,
    "quota": 429,
    "internal": 500,
    "busy": 503,
    "unavailable": 503,
    "unknown": 503,
}
"""Status by code. Other codes of a refusal are 422 for a submission and 409 for every other verb."""

_HEADERS = {401: {"WWW-Authenticate": "Bearer"}, 429: {"Retry-After": "10"}, 503: {"Retry-After": "2"}}

_MEANING = {
    401: "No token, or one that is not known.",
    403: "The caller may not do this.",
    404: "There is no such job or node, or it is another user's.",
    405: "The path exists, but not with this method.",
    408: "The request did not arrive in time.",
    409: "The verb does not fit the state of the job or node, or the key was used for another request before.",
    413: "The body is larger than the daemon accepts.",
    422: "The request is not valid, or the job can never run.",
    429: "A limit of the user or the queue is reached.",
    503: "The daemon cannot do it now: too many requests, disk full or shutting down. Nothing was changed, unless the "
    "code is `unknown`: then the same request with the same `Idempotency-Key` finds out.",
}


class ApiError(Exception):
    """An error that the API itself finds."""

    def __init__(self, code: str, message: str, field: str = "") -> None:
        super().__init__(message)
        self.code, self.message, self.field = code, message, field

    def response(self) -> Response:
        return error_response(STATUS[self.code], self.code, self.message, self.field)


def error_response(status: int, code: str, message: str, field: str = "") -> Response:
    body = ErrorView(code=code, message=message, field=field).model_dump_json()
    return Response(body, status, _HEADERS.get(status), "application/json")


def refusal(error: Refused, submission: bool) -> Response:
    """The answer to a verb that was refused."""
    status = STATUS.get(error.code, 422 if submission else 409)
    return error_response(status, error.code, str(error))


def invalid(error: InputError) -> Response:
    return error_response(422, "invalid", str(error), error.field)


def documented(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The errors of a path for the OpenAPI description."""
    body = {"application/json": {"schema": {"$ref": "#/components/schemas/ErrorView"}}}
    return {status: {"description": _MEANING[status], "content": body} for status in sorted(statuses)}
