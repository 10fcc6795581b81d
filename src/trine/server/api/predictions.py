"""The paths of predictions: when jobs will start and end, and what a change would do to that."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from trine.server.api.answers import caller_of
from trine.server.api.errors import ApiError, documented
from trine.server.interface import Service

_Change = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f]*$")]
_EXPECTED = 'Expected a body such as {"changes": ["policy las"]}, one to twenty changes of a few words each.'


class TimesView(BaseModel):
    """Median and 80 % interval, Unix seconds."""

    low: float
    median: float
    high: float


class PredictionView(BaseModel):
    """``null``: it has started already, or will not as things are."""

    start_s: TimesView | None
    end_s: TimesView | None
    reason: str = Field(examples=["waits for job 17 to end"])
    blocker: str | None = Field(description="The job that it waits for in most futures, if the caller may see that.")


class PredictionsView(BaseModel):
    """Predictions of all live jobs of the caller, and how earlier ones of this daemon came true."""

    made_at_s: float
    draws: int
    calibrated: bool = Field(description="Intervals were put right by how earlier ones came out.")
    score: dict[str, Any] | None
    jobs: dict[str, PredictionView]


class WhatIf(BaseModel):
    """What to change."""

    model_config = ConfigDict(extra="forbid", strict=True)

    changes: list[_Change] = Field(min_length=1, max_length=20, examples=[["policy las", "add 2x8"]])


class ComparisonView(BaseModel):
    """Who gains and who loses; ``change_s`` of a job below 0: it ends earlier; ``never_runs``: it counts as one that
    loses, since it would end as things are and could not run at all after the changes."""

    made_at_s: float
    draws: int
    gain: int
    lose: int
    same: int
    mean_change_s: TimesView | None
    assumed: list[str] = Field(description="What had to be assumed of nodes that were added, in sentences.")
    instead: dict[str, str] = Field(description="Changes that no verb of the daemon makes, and what to do about each.")
    jobs: dict[str, dict[str, Any]]


class PredictionRoutes:
    """Handlers; each asks the service and turns the value into JSON."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def add_to(self, router: APIRouter) -> None:
        add, tags = router.add_api_route, ["predictions"]
        add(
            "/v1/predictions",
            self.predictions,
            methods=["GET"],
            response_model=PredictionsView,
            responses=documented(401, 503),
            tags=tags,  # type: ignore[arg-type]  # a list of texts
        )
        body = {"required": True, "content": {"application/json": {"schema": WhatIf.model_json_schema()}}}
        add(
            "/v1/whatif",
            self.whatif,
            methods=["POST"],
            response_model=ComparisonView,
            responses=documented(401, 413, 422, 503),
            tags=tags,  # type: ignore[arg-type]
            openapi_extra={"requestBody": body},
        )

    async def predictions(self, request: Request) -> Response:
        """When jobs will start and end, and why not sooner; at most some seconds old."""
        return JSONResponse(await self._service.predictions(caller_of(request)))

    async def whatif(self, request: Request) -> Response:
        """What changes would do to every job, before anything happens; nothing is changed."""
        try:
            asked = WhatIf.model_validate_json(request.scope["body"])
        except ValidationError:
            raise ApiError("invalid", _EXPECTED, "changes") from None
        return JSONResponse(await self._service.whatif(asked.changes, caller_of(request)))
