"""Requests of browsers: forged ones, bent names and frames get nothing; events tell each caller what it may see."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from tests.server.api.conftest import Running, eventually
from tests.server.api.fake import ADMIN_TOKEN, ANNA_TOKEN, BEN_TOKEN
from trine.server.api.browser import set_cookie
from trine.server.dashboard.app_files import HEADERS, app_files

JOB = {"run": "python train.py", "name": "train"}


def browser(server: Running, token: str = ANNA_TOKEN) -> httpx.Client:
    """Logged in, as our own page would be."""
    client = server.client(None)
    answer = client.post("/ui/login", json={"secret": token})
    assert answer.status_code == 200
    client.headers["Trine-Proof"] = answer.json()["proof"]
    return client


def test_a_login_sets_a_cookie_of_the_strict_kind(server: Running) -> None:
    answer = server.client(None).post("/ui/login", json={"secret": ANNA_TOKEN})
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie and "SameSite=Strict" in cookie and "Path=/" in cookie and str(server.port) in cookie
    assert ANNA_TOKEN not in cookie + answer.text
    assert answer.json()["user"] == "anna" and not answer.json()["admin"]
    assert server.client(None).post("/ui/login", json={"secret": "x" * 64}).status_code == 401


def test_a_session_may_do_what_its_token_may(server: Running) -> None:
    client = browser(server)
    job = client.post("/v1/jobs", json=JOB).json()["ids"][0]
    assert client.get(f"/v1/jobs/{job}").json()["user"] == "anna"
    assert client.post(f"/v1/jobs/{job}/hold").json()["state"] == "held"
    assert browser(server, BEN_TOKEN).get(f"/v1/jobs/{job}").status_code == 404
    assert client.post("/v1/nodes/node0/drain", json={}).status_code == 403
    assert client.post("/ui/logout").status_code == 204
    assert client.get(f"/v1/jobs/{job}").status_code == 401


FORGED: dict[str, dict[str, str]] = {
    "without the proof": {"Trine-Proof": ""},
    "with another proof": {"Trine-Proof": "0" * 32},
    "from another site": {"Origin": "http://evil.example"},
    "from another port of this host": {"Origin": "http://127.0.0.1:1"},
    "that the browser calls cross-site": {"Sec-Fetch-Site": "cross-site"},
    "that the browser calls same-site": {"Sec-Fetch-Site": "same-site"},
    "to a name that was bent to this address": {"Host": "evil.example"},
}


@pytest.mark.parametrize("case", FORGED)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_forged_request_changes_and_shows_nothing(server: Running, case: str, method: str) -> None:
    client = browser(server)
    job = client.post("/v1/jobs", json=JOB).json()["ids"][0]
    path = f"/v1/jobs/{job}/cancel" if method == "POST" else f"/v1/jobs/{job}"
    answer = client.request(method, path, headers=FORGED[case])
    assert answer.status_code in (401, 403, 421) and "train" not in answer.text
    assert server.service.views[job].state == "waiting"


@pytest.mark.parametrize("path", ["/ui", "/ui/main.js", "/ui/about"])
def test_pages_are_not_served_to_a_bent_name(server: Running, path: str) -> None:
    client = server.client(None)
    assert client.get(path, headers={"Host": "evil.example"}).status_code == 421
    assert client.get(path, headers={"Host": f"localhost:{server.port}"}).status_code == 200
    assert client.get(path, headers={"Host": f"[::1]:{server.port}"}).status_code == 200


def test_another_site_cannot_log_anybody_in(server: Running) -> None:
    client, body = server.client(None), json.dumps({"secret": ANNA_TOKEN})
    assert client.post("/ui/login", content=body, headers={"Content-Type": "text/plain"}).status_code == 422
    foreign = {"Origin": "http://evil.example", "Content-Type": "application/json"}
    assert client.post("/ui/login", content=body, headers=foreign).status_code == 403
    assert client.get(f"/ui/login?secret={ANNA_TOKEN}").status_code == 405
    assert not client.cookies


def test_a_token_in_an_address_lets_nobody_in(server: Running) -> None:
    for query in (f"token={ANNA_TOKEN}", f"secret={ANNA_TOKEN}", f"access_token={ANNA_TOKEN}"):
        assert server.client(None).get(f"/v1/jobs?{query}").status_code == 401


def test_codes_come_from_tokens_and_sessions_and_sessions_end_together(server: Running) -> None:
    anna = server.client(ANNA_TOKEN)
    anna.post("/v1/session/end")
    first = browser(server, anna.post("/v1/session/code").json()["code"])
    second = browser(server, first.post("/v1/session/code").json()["code"])
    assert second.get("/v1/session").json()["user"] == "anna"
    assert anna.post("/v1/session/end").json() == {"ended": 2}
    assert second.get("/v1/session").status_code == 401


@pytest.mark.parametrize("path", sorted(app_files()))
def test_files_of_the_dashboard_have_a_strict_policy_and_ask_nobody_else(server: Running, path: str) -> None:
    client = server.client(None)
    answer = client.get(f"/ui/{path}" if path else "/ui")
    assert answer.status_code == 200
    for name, value in HEADERS.items():
        assert answer.headers[name] == value
    policy = answer.headers["content-security-policy"]
    assert "unsafe" not in policy and "default-src 'none'" in policy and "frame-ancestors 'none'" in policy
    assert answer.text.replace("http://www.w3.org/2000/svg", "").count("://") == 0, "nothing comes from elsewhere"
    for sink in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("):
        assert sink not in answer.text
    again = client.get(f"/ui/{path}" if path else "/ui", headers={"If-None-Match": answer.headers["etag"]})
    assert again.status_code == 304 and not again.content


def events(client: httpx.Client, since: str = "") -> list[tuple[str, str, dict[str, Any]]]:
    text = client.get("/v1/board/events", params={"since": since, "follow": "false"}).text
    found = []
    for part in text.split("\n\n")[:-1]:
        lines = dict(line.split(": ", 1) for line in part.splitlines() if not line.startswith(":"))
        found.append((lines["event"], lines["id"], json.loads(lines["data"])))
    return found


def test_events_are_a_snapshot_and_then_what_changed(server: Running, anna: httpx.Client, ben: httpx.Client) -> None:
    anna.post("/v1/jobs", json=JOB)
    ((kind, version, snapshot),) = events(anna)
    assert kind == "snapshot" and [row[0] for row in snapshot["jobs"]] == ["1"]
    ben.post("/v1/jobs", json={**JOB, "name": "bens"})
    anna.post("/v1/jobs/1/hold")
    eventually(lambda: bool(events(anna, version)))
    changed = events(anna, version)
    assert {kind for kind, _, _ in changed} == {"change"}
    rows = [row for _, _, value in changed for row in value.get("jobs", ())]
    state = snapshot["columns"].index("state")
    assert {(row[0], row[state]) for row in rows} == {("1", "held")}
    assert "bens" not in json.dumps(changed)
    ((_, _, everything),) = events(server.client(ADMIN_TOKEN))
    assert len(everything["jobs"]) == 2


@pytest.mark.parametrize("since", ["0000.7", "nonsense", "1"])
def test_events_since_something_unknown_begin_anew(server: Running, anna: httpx.Client, since: str) -> None:
    ((kind, _, _),) = events(anna, since)
    assert kind == "snapshot"


def test_reasons_are_told_of_own_jobs_only(server: Running, anna: httpx.Client, ben: httpx.Client) -> None:
    anna.post("/v1/jobs", json=JOB)
    ben.post("/v1/jobs", json=JOB)
    found = anna.get("/v1/board/reasons?job=1&job=2&job=99").json()["reasons"]
    assert list(found) == ["1"] and found["1"]["sentence"] == "No GPU is free."


def test_a_number_that_is_none_of_ours_begins_anew(server: Running, anna: httpx.Client) -> None:
    ((_, version, _),) = events(anna)
    for number in ("²", "9" * 30, "-1"):
        ((kind, _, _),) = events(anna, f"{version.partition('.')[0]}.{number}")
        assert kind == "snapshot"


@pytest.mark.parametrize("headers", [{"Sec-Fetch-Site": "cross-site"}, {"Trine-Proof": "0" * 32}])
def test_only_our_own_pages_log_out(server: Running, headers: dict[str, str]) -> None:
    client = browser(server)
    assert client.post("/ui/logout", headers=headers).status_code in (401, 403)
    assert client.get("/v1/session").status_code == 200


def test_with_tls_the_cookie_is_for_this_host_and_tls_alone() -> None:
    scope = {"scheme": "https", "server": ("trine.example", 443), "headers": []}
    cookie = set_cookie(scope, "secret", 60)
    assert cookie.startswith("__Host-trine-443=secret; Path=/; ") and cookie.endswith("; Secure")
    assert "Secure" not in set_cookie({**scope, "scheme": "http"}, "secret", 60)


def test_events_and_logs_of_a_session_end_with_it(server: Running) -> None:
    anna = server.client(ANNA_TOKEN)
    anna.post("/v1/session/end")
    client = browser(server)
    job = client.post("/v1/jobs", json=JOB).json()["ids"][0]
    (server.service.logs / f"{job}.log").write_text("begun\n")
    with (
        client.stream("GET", "/v1/board/events") as events,
        client.stream("GET", f"/v1/jobs/{job}/log?follow=true") as log,
    ):
        streams = [log.iter_bytes(), events.iter_bytes()]
        for stream in streams:
            next(stream)
        assert anna.post("/v1/session/end").json() == {"ended": 1}
        anna.post("/v1/jobs", json={**JOB, "name": "secret"})
        assert all(b"secret" not in b"".join(stream) for stream in streams), "they end, and say no more"
    assert client.get("/v1/board/events").status_code == 401
