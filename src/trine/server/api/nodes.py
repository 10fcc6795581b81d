"""The paths of nodes and of the daemon itself."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from trine.server.api.answers import NODE_NAME, caller_of, daemon_answer, node_answer, nodes_answer
from trine.server.api.errors import ApiError, documented
from trine.server.service import DaemonView, NodeView, Service

NodeName = Annotated[str, Path(description="The node's name.", pattern=NODE_NAME, examples=["node0"])]
METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_CHANGE = documented(401, 403, 404, 409, 413, 422, 503)


class Drain(BaseModel):
    """Why a node is drained; shown to users whose jobs wait for it."""

    model_config = ConfigDict(extra="forbid", strict=True)

    reason: str = Field(default="", max_length=500, pattern=r"^[^\x00-\x1f\x7f]*$", examples=["new power supply"])


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
        body: dict[str, Any] = {
            "content": {"application/json": {"schema": Drain.model_json_schema()}},
            "required": False,
        }
        add = router.add_api_route
        add("/v1/nodes", self.list_nodes, response_model=list[NodeView], tags=["nodes"], **read)
        add("/v1/nodes/{name}/drain", self.drain, openapi_extra={"requestBody": body}, **change)
        add("/v1/nodes/{name}/undrain", self.undrain, **change)
        add("/v1/daemon", self.daemon, response_model=DaemonView, tags=["daemon"], **read)

    async def list_nodes(self) -> Response:
        """All nodes with their GPUs: who holds them, their scores and what is remarkable about them."""
        return nodes_answer(self._service.nodes())

    async def drain(self, request: Request, name: NodeName) -> Response:
        """Start nothing more on the node; what runs there may end there or move. For administrators."""
        _check_admin(request)
        reason = _reason(request.scope["body"])
        return node_answer(await self._service.drain(name, reason, caller_of(request)))

    async def undrain(self, request: Request, name: NodeName) -> Response:
        """Use the node again. For administrators."""
        _check_admin(request)
        return node_answer(await self._service.undrain(name, caller_of(request)))

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


def _check_admin(request: Request) -> None:
    if not caller_of(request).admin:
        raise ApiError("forbidden", "Only an administrator may change nodes.")


def _reason(body: bytes) -> str:
    if not body:
        return ""
    try:
        return Drain.model_validate_json(body).reason
    except ValidationError:
        expected = 'Expected a body such as {"reason": "new power supply"}: printable, at most 500 characters.'
        raise ApiError("invalid", expected, "reason") from None
