"""The paths of quotas: how many GPUs users and queues may hold, and changes of that while the daemon runs."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from starlette.requests import Request
from starlette.responses import Response

from trine.inputs.job_rules import MAX_GPUS
from trine.server.api.answers import caller_of, check_admin, quotas_answer, whole
from trine.server.api.errors import ApiError, documented
from trine.server.interface import QuotaView, Service

_Subject = Annotated[
    str, Field(pattern=r"^(user:[A-Za-z_][A-Za-z0-9_.-]{0,31}|queue:[A-Za-z0-9][A-Za-z0-9.:+_-]{0,63})$")
]
_MaxGpus = Annotated[int, Field(ge=0, le=MAX_GPUS), BeforeValidator(whole)]
_EXPECTED = (
    'Expected a body such as {"quotas": {"user:ann": 16, "queue:prod": null}}: '
    'GPUs from 0 on, null for no limit, "default" for what is configured; at most 1,000.'
)


class Quotas(BaseModel):
    """GPUs at most by `user:NAME` or `queue:NAME`; `null`: no limit, `default`: as configured."""

    model_config = ConfigDict(extra="forbid", strict=True)

    quotas: dict[_Subject, _MaxGpus | Literal["default"] | None] = Field(
        min_length=1,
        max_length=1_000,
        examples=[{"user:ann": 16, "queue:prod": None}],
        json_schema_extra={"additionalProperties": False},  # no other names than those of the pattern
    )


class QuotaRoutes:
    """Handlers; each asks the service and turns the value into JSON."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def add_to(self, router: APIRouter) -> None:
        shared: dict[str, Any] = {"response_model": list[QuotaView], "tags": ["quotas"]}
        body = {"required": True, "content": {"application/json": {"schema": Quotas.model_json_schema()}}}
        add = router.add_api_route
        add("/v1/quotas", self.list_quotas, methods=["GET"], responses=documented(401, 503), **shared)
        add(
            "/v1/quotas",
            self.change,
            methods=["POST"],
            responses=documented(401, 403, 404, 413, 422, 503),
            openapi_extra={"requestBody": body},
            **shared,
        )

    async def list_quotas(self, request: Request) -> Response:
        """How many GPUs every queue, and every user with a quota that the caller may see, may hold at most."""
        return quotas_answer(self._service.quotas(caller_of(request)))

    async def change(self, request: Request) -> Response:
        """Change quotas, all of them or none; jobs that run go on. It outlives a restart. For administrators."""
        check_admin(request)
        try:
            asked = Quotas.model_validate_json(request.scope["body"])
        except ValidationError:
            raise ApiError("invalid", _EXPECTED, "quotas") from None
        return quotas_answer(await self._service.set_quotas(asked.quotas, caller_of(request)))
