"""Submission: the one path that must be fast, so its body goes straight to the job specification's validator."""

from __future__ import annotations

import json
import re
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope

from trine.core.errors import InputError
from trine.inputs.job_rules import MAX_JOBS
from trine.inputs.job_spec import parse_jobs
from trine.server.api.answers import unknown_parameter
from trine.server.api.errors import ApiError, invalid, refusal
from trine.server.interface import Refused, Service

_KEY = re.compile(r"[!-~]{1,128}")
_JOB = {"$ref": "#/components/schemas/JobSpec"}
_LIST = {"type": "array", "items": _JOB, "minItems": 1, "maxItems": MAX_JOBS}
_VARIABLES = {"type": "object", "additionalProperties": {"type": "string"}}
_WITH_COMMON_ENV = {
    "type": "object",
    "properties": {"jobs": _LIST, "env": _VARIABLES},
    "required": ["jobs"],
    "additionalProperties": False,
}

DESCRIPTION = (
    "One job, or a list of jobs that are accepted all or none; as `{jobs, env}` with variables common to all. "
    "A job that can never run is refused with the reason. "
    "Accepted jobs are durable: they survive a crash of the daemon. With the header `Idempotency-Key`, a request that "
    "is sent again (because the answer was lost, or was `unknown`) returns the same ids and submits nothing twice; the "
    "same key with other jobs is refused as a `conflict`."
)
BODY: dict[str, Any] = {
    "required": True,
    "content": {
        "application/json": {
            "schema": {"anyOf": [_JOB, _LIST, _WITH_COMMON_ENV]},
            "examples": {
                "one": {"summary": "One job", "value": {"run": "python train.py --lr 0.1", "gpus": 4}},
                "several": {
                    "summary": "Two jobs, accepted together",
                    "value": [{"run": ["python", "train.py", "--seed", seed], "gpus": 1} for seed in "12"],
                },
            },
        }
    },
}
KEY_PARAMETER: dict[str, Any] = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": "Up to 128 visible ASCII characters, chosen by the client, the same for a request sent again.",
    "schema": {"type": "string", "pattern": "^[!-~]{1,128}$"},
}


class Submit:
    """The handler of ``POST /v1/jobs``."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def endpoint(self, request: Request) -> Response:
        return await self.answer(request.scope)

    async def answer(self, scope: Scope) -> Response:
        if scope["query_string"]:
            raise unknown_parameter(scope["query_string"].decode("latin-1"), ())
        try:
            specs = parse_jobs(scope["body"])
            ids = await self._service.submit(specs, scope["caller"], _request_id(scope))
        except InputError as error:
            return invalid(error)
        except Refused as error:
            return refusal(error, submission=True)
        return Response(json.dumps({"ids": ids}), 201, media_type="application/json")


def _request_id(scope: Scope) -> str:
    """Empty if the client gave none."""
    for name, value in scope["headers"]:
        if name == b"idempotency-key":
            key = value.decode("latin-1")
            if not _KEY.fullmatch(key):
                raise ApiError("invalid", "Expected 1 to 128 visible ASCII characters.", "Idempotency-Key")
            return str(key)
    return ""
