"""The paths by which browsers log in and out, and by which a token is turned into a code for a browser."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from trine.server.api.answers import caller_of
from trine.server.api.browser import LONGEST_SECRET, Browsers, header, session_cookie, set_cookie
from trine.server.api.errors import ApiError, documented
from trine.server.dashboard.pages import ROOT
from trine.server.sessions import LONGEST_S, digest

_UNKNOWN = "Neither a token of this daemon nor a code that is still good; `trine dashboard` makes a new code."
_UNKNOWN_TO_VIEW = "Not a code that is still good; `trine view` prints a new one when it is started again."


class _Secret(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)
    secret: str = Field(min_length=1, max_length=LONGEST_SECRET)


class SessionView(BaseModel):
    """Who asks; `ends_s` is when the session of a browser ends at the latest, Unix seconds."""

    user: str = Field(examples=["ada"])
    admin: bool
    ends_s: float | None = None
    runs: list[str] = Field(default=[], description="Titles of the recorded runs that are shown; none: a daemon.")


class LoginCode(BaseModel):
    """A code that logs a browser in, once."""

    code: str = Field(examples=["KQ7M-2XBR-9TPA"])
    ends_s: float = Field(description="Until when it is good, Unix seconds.")


class SessionsEnded(BaseModel):
    """How many sessions there were."""

    ended: int


class SessionRoutes:
    """Handlers below ``/v1/session`` for all callers, and ``/ui/login`` and ``/ui/logout`` for browsers."""

    def __init__(self, browsers: Browsers, runs: Sequence[str] = ()) -> None:
        self._browsers, self._sessions, self._runs = browsers, browsers.sessions, list(runs)

    def add_to(self, router: APIRouter) -> None:
        common: dict[str, Any] = {"responses": documented(401, 403, 503), "tags": ["daemon"]}
        add = router.add_api_route
        add("/v1/session", self.session, methods=["GET"], response_model=SessionView, **common)
        add("/v1/session/code", self.code, methods=["POST"], response_model=LoginCode, **common)
        add("/v1/session/end", self.end, methods=["POST"], response_model=SessionsEnded, **common)

    def page_routes(self) -> list[Route]:
        return [
            Route(f"{ROOT}/login", self.login, methods=["POST"], include_in_schema=False),
            Route(f"{ROOT}/logout", self.logout, methods=["POST"], include_in_schema=False),
        ]

    async def session(self, request: Request) -> SessionView:
        """Who the caller is."""
        caller = caller_of(request)
        ends_s = self._sessions.ends_s(session_cookie(request.scope))
        return SessionView(user=caller.user, admin=caller.admin, ends_s=ends_s, runs=self._runs)

    async def code(self, request: Request) -> LoginCode:
        """A code that logs a browser in as the caller, once, within five minutes."""
        bearer = header(request.scope, "authorization").partition(" ")[2].strip()
        token = digest(bearer) if bearer else self._sessions.token_of(session_cookie(request.scope))
        assert token is not None  # the gate let the caller in by one of the two
        code, ends_s = self._sessions.new_code(token)
        return LoginCode(code=code, ends_s=ends_s)

    async def end(self, request: Request) -> SessionsEnded:
        """End all browser sessions of the caller."""
        return SessionsEnded(ended=self._sessions.end_all(caller_of(request)))

    async def login(self, request: Request) -> Response:
        """A token or a code in the body, never in the address, becomes a session."""
        scope = request.scope
        self._browsers.check_origin(scope)
        made = self._sessions.login(_secret(request))
        if made is None:
            raise ApiError("unauthorized", _UNKNOWN_TO_VIEW if self._runs else _UNKNOWN, "secret")
        caller = self._sessions.caller(made.cookie, made.proof)
        assert caller is not None
        body = {"proof": made.proof, "user": caller.user, "admin": caller.admin, "ends_s": made.ends_s}
        headers = {"Set-Cookie": set_cookie(scope, made.cookie, LONGEST_S), "Cache-Control": "no-store"}
        return JSONResponse(body, headers=headers)

    async def logout(self, request: Request) -> Response:
        """End this session; only its own pages can."""
        self._browsers.caller(request.scope)
        self._sessions.end(session_cookie(request.scope))
        return Response(status_code=204, headers={"Set-Cookie": set_cookie(request.scope, "", 0)})


def _secret(request: Request) -> str:
    """A form of another site cannot send this type, and so cannot begin a session."""
    if header(request.scope, "content-type").partition(";")[0].strip() != "application/json":
        raise ApiError("invalid", "Expected a body of type application/json.", "Content-Type")
    try:
        return _Secret.model_validate(json.loads(request.scope["body"] or b"null")).secret.strip()
    except (ValueError, ValidationError, RecursionError):
        raise ApiError("invalid", 'Expected a body such as {"secret": "KQ7M-2XBR-9TPA"}.', "secret") from None
