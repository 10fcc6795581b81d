"""Puts the API together: the gate, the paths, the shape of errors, and the OpenAPI description."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Depends, FastAPI
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

import trine
from trine.executor.base import AttemptRelay
from trine.inputs.job_spec import JobSpec
from trine.server.api import submit
from trine.server.api.answers import known_query
from trine.server.api.attempts import attempt_paths
from trine.server.api.board import BoardRoutes
from trine.server.api.browser import Browsers
from trine.server.api.errors import ApiError, ErrorView, documented, error_response, refusal
from trine.server.api.gate import Authority, Gate, RequestLog
from trine.server.api.jobs import JobRoutes
from trine.server.api.limits import DEFAULT, Limits
from trine.server.api.logs import LogRoute
from trine.server.api.nodes import NodeRoutes, PlainRoutes
from trine.server.api.predictions import PredictionRoutes
from trine.server.api.quotas import QuotaRoutes
from trine.server.api.sessions import SessionRoutes
from trine.server.api.watches import Watches
from trine.server.dashboard.app_files import app_routes
from trine.server.dashboard.pages import page_routes
from trine.server.interface import Refused, Service
from trine.server.sessions import Sessions

ABOUT = (
    "Submit jobs, see why they wait, follow their logs. Every call but `/healthz` needs a token, this description too: "
    "`Authorization: Bearer TOKEN`. The daemon's own token (file `token` in its state directory) is the "
    "administrator's. Every error has the body `{code, message, field}`. Times are Unix seconds."
)
_SUBMIT_ERRORS = documented(401, 403, 409, 413, 422, 429, 503)


class Submitted(BaseModel):
    """The ids of accepted jobs, in the order of the request."""

    ids: list[str] = Field(examples=[["17", "18"]])


def build_app(
    service: Service,
    auth: Authority,
    limits: Limits = DEFAULT,
    log: RequestLog | None = None,
    log_requests: bool = True,
    browsers: Browsers | None = None,
    relay: AttemptRelay | None = None,
) -> FastAPI:
    """The API of ``service``; ``log`` gets failures and, if ``log_requests``, every request of a user. ``relay``: what
    attempts reach, see ``attempts``.

    ``browsers`` holds the logins of browsers; without it they end with this process.
    ``app.state.watches.close()`` ends calls that last, before a shutdown.
    """
    app = FastAPI(title="trine", version=trine.__version__, description=ABOUT, docs_url=None, redoc_url=None)
    watches = Watches(service.changed, limits)
    app.state.watches = watches
    router = APIRouter(dependencies=[Depends(known_query)])
    submission = submit.Submit(service)
    _add_submit(router, submission)
    watching = (JobRoutes(service, watches), LogRoute(service, watches), BoardRoutes(service, watches))
    for routes in (*watching, NodeRoutes(service), QuotaRoutes(service), PlainRoutes(service)):
        routes.add_to(router)
    PredictionRoutes(service).add_to(router)
    browsers = browsers or Browsers(Sessions(auth.holder))
    sessions = SessionRoutes(browsers)
    sessions.add_to(router)
    app.include_router(router)
    app.router.routes.extend([*page_routes(), *app_routes(), *sessions.page_routes()])
    add_error_shapes(app)
    shortcuts = {("POST", "/v1/jobs"): submission.answer}
    attempts = attempt_paths(relay)
    app.add_middleware(
        Gate,
        auth=auth,
        limits=limits,
        log=log,
        log_requests=log_requests,
        shortcuts=shortcuts,
        attempts=attempts,
        browsers=browsers,
    )
    _describe(app)
    return app


def _add_submit(router: APIRouter, submission: submit.Submit) -> None:
    router.add_api_route(
        "/v1/jobs",
        submission.endpoint,
        methods=["POST"],
        status_code=201,
        name="submit",
        summary="Submit",
        description=submit.DESCRIPTION,
        tags=["jobs"],
        response_model=Submitted,
        responses=_SUBMIT_ERRORS,
        openapi_extra={"requestBody": submit.BODY, "parameters": [submit.KEY_PARAMETER]},
    )


def add_error_shapes(app: FastAPI) -> None:
    """Every error has the same shape, wherever it is found."""
    app.add_exception_handler(Refused, _refused)
    app.add_exception_handler(ApiError, _api_error)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http)


async def _refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, Refused)
    return refusal(error, submission=False)


async def _api_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    return error.response()


async def _invalid(_: Request, error: Exception) -> Response:
    """A parameter in the path or the query."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    name = str(first["loc"][1]) if len(first["loc"]) > 1 else ""
    return error_response(422, "invalid", f"{name}: {first['msg']}.", name)


async def _http(_: Request, error: Exception) -> Response:
    """What the framework itself refuses: unknown paths and methods."""
    assert isinstance(error, HTTPException)
    names = {404: ("no-such-path", "There is no such path."), 405: ("method-not-allowed", "Not with this method.")}
    code, message = names.get(error.status_code, ("invalid", "The request is not valid."))
    response = error_response(error.status_code, code, message)
    response.headers.update(error.headers or {})
    return response


def _describe(app: FastAPI) -> None:
    """Complete the OpenAPI description with what the framework does not see: the token and the job specification."""
    made = app.openapi
    known: dict[str, Any] = {}

    def describe() -> dict[str, Any]:
        if not known:
            known.update(_completed(made()))
        return known

    app.openapi = describe  # type: ignore[method-assign]


def _completed(schema: dict[str, Any]) -> dict[str, Any]:
    components = schema.setdefault("components", {})
    job = JobSpec.model_json_schema(by_alias=True, ref_template="#/components/schemas/{model}")
    components["schemas"].update(job.pop("$defs"))
    components["schemas"].update(JobSpec=job, ErrorView=ErrorView.model_json_schema())
    components["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    schema["security"] = [{"token": []}]
    return schema
