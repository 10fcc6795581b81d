"""The paths of nodes and of the daemon itself."""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Path, Query
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from trine.server.api.answers import (
    NODE_NAME,
    caller_of,
    check_admin,
    collected_answer,
    daemon_answer,
    node_answer,
    nodes_answer,
    whole,
)
from trine.server.api.errors import ApiError, documented
from trine.server.interface import Collected, DaemonView, NodeView, Service

NodeName = Annotated[str, Path(description="The node's name.", pattern=NODE_NAME, examples=["node0"])]
METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_CHANGE = documented(401, 403, 404, 409, 413, 422, 503)


_Index = Annotated[int, Field(ge=0, le=65_535), BeforeValidator(whole)]


class Undrain(BaseModel):
    """Which GPUs of a node are meant; the whole node if none is named."""

    model_config = ConfigDict(extra="forbid", strict=True)

    gpus: Annotated[list[_Index], Field(min_length=1, max_length=1_024)] | None = Field(
        default=None, description="Indices of GPUs on the node; without it the whole node.", examples=[[3]]
    )


class Drain(Undrain):
    """Why a node, or some of its GPUs, are drained; shown to users whose jobs wait for it."""

    reason: str = Field(default="", max_length=500, pattern=r"^[^\x00-\x1f\x7f]*$", examples=["new power supply"])


_DRAIN = 'such as {"reason": "new power supply", "gpus": [3]}: printable, at most 500 characters; indices of GPUs'
_UNDRAIN = 'such as {"gpus": [3]}, indices of GPUs on the node, or none for the whole node'
T = TypeVar("T", bound=Undrain)


class NodeRoutes:
    """Handlers; each asks the service and turns the value into JSON."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def add_to(self, router: APIRouter) -> None:
        read: dict[str, Any] = {"methods": ["GET"], "responses": documented(401, 503)}
        change: dict[str, Any] = {
            "methods": ["POST"],
            "responses": _CHANGE,
            "tags": ["nodes"],
            "response_model": NodeView,
        }
        add = router.add_api_route
        add("/v1/nodes", self.list_nodes, response_model=list[NodeView], tags=["nodes"], **read)
        add("/v1/nodes/{name}/drain", self.drain, openapi_extra={"requestBody": _body(Drain)}, **change)
        add("/v1/nodes/{name}/undrain", self.undrain, openapi_extra={"requestBody": _body(Undrain)}, **change)
        gc = {**change, "tags": ["daemon"], "response_model": Collected, "responses": documented(401, 403, 422, 503)}
        add("/v1/gc", self.collect, **gc)
        add("/v1/daemon", self.daemon, response_model=DaemonView, tags=["daemon"], **read)

    async def list_nodes(self) -> Response:
        """All nodes with their GPUs: who holds them, their scores and what is remarkable about them."""
        return nodes_answer(self._service.nodes())

    async def drain(self, request: Request, name: NodeName) -> Response:
        """Start nothing more on the node or some of its GPUs; what runs there may end or move. For administrators."""
        check_admin(request)
        asked = _read(Drain, request.scope["body"], "reason", _DRAIN)
        return node_answer(await self._service.drain(name, asked.reason, caller_of(request), _gpus(asked)))

    async def undrain(self, request: Request, name: NodeName) -> Response:
        """Use the node and all its GPUs again, or only some GPUs. For administrators."""
        check_admin(request)
        asked = _read(Undrain, request.scope["body"], "gpus", _UNDRAIN)
        return node_answer(await self._service.undrain(name, caller_of(request), _gpus(asked)))

    async def collect(
        self, request: Request, dry_run: Annotated[bool, Query(description="Only say what would be removed.")] = False
    ) -> Response:
        """Remove directories of old jobs and old records of the journal now, as the daemon's options say. For
        administrators."""
        check_admin(request)
        return collected_answer(await self._service.collect(caller_of(request), dry_run))

    async def daemon(self) -> Response:
        """The daemon: version, policy, placement, round and counts."""
        return daemon_answer(self._service.daemon())


class PlainRoutes:
    """Paths for probes and collectors."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def add_to(self, router: APIRouter) -> None:
        text = {"description": "Prometheus text exposition.", "content": {METRICS_TYPE: {"schema": {"type": "string"}}}}
        router.add_api_route(
            "/metrics",
            self.metrics,
            methods=["GET"],
            tags=["daemon"],
            response_class=PlainTextResponse,
            responses={200: text, **documented(401, 503)},
        )
        router.add_api_route(
            "/healthz",
            self.healthz,
            methods=["GET"],
            tags=["daemon"],
            response_class=PlainTextResponse,
            openapi_extra={"security": []},
        )

    async def metrics(self) -> Response:
        """Metrics for Prometheus."""
        return Response(self._service.metrics(), media_type=METRICS_TYPE)

    async def healthz(self) -> Response:
        """`ok` if the daemon answers. The only path without a token, so it says nothing else."""
        return PlainTextResponse("ok\n")


def _body(kind: type[BaseModel]) -> dict[str, Any]:
    return {"content": {"application/json": {"schema": kind.model_json_schema()}}, "required": False}


def _read(kind: type[T], body: bytes, field: str, expected: str) -> T:
    """The body, which may be left out."""
    try:
        return kind.model_validate_json(body or b"{}")
    except ValidationError as error:
        where = error.errors()[0]["loc"]
        name = str(where[0]) if where and where[0] in kind.model_fields else field
        raise ApiError("invalid", f"Expected a body {expected}.", name) from None


def _gpus(asked: Undrain) -> tuple[int, ...]:
    return tuple(sorted(set(asked.gpus or ())))
