"""Pages beside the API: no token, a strict policy, nothing of the daemon's state, and a new one is one new file."""

from __future__ import annotations

import base64
import hashlib
import re
from pathlib import Path

import httpx
import pytest

from tests.server.api.conftest import Running, running
from tests.server.api.fake import ADMIN_TOKEN, ANNA_TOKEN, FakeAuth, FakeService
from trine.server import dashboard
from trine.server.api.limits import Limits
from trine.server.dashboard.pages import ROOT, find_pages, is_page

PATHS = [ROOT + page.path for page in find_pages()]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> object:
    with running(FakeService(tmp_path_factory.mktemp("logs")), Limits(), FakeAuth()) as found:
        yield found


@pytest.mark.parametrize("path", PATHS)
def test_a_page_needs_no_token_and_runs_nothing(server: Running, path: str) -> None:
    answer = server.client(None).get(path)
    assert answer.status_code == 200 and answer.headers["content-type"] == "text/html; charset=utf-8"
    assert "set-cookie" not in answer.headers
    policy = dict(part.strip().partition(" ")[::2] for part in answer.headers["content-security-policy"].split(";"))
    assert policy["default-src"] == "'none'" and policy["frame-ancestors"] == "'none'"
    assert "unsafe" not in answer.headers["content-security-policy"] and "script-src" not in policy
    styles = re.findall(r"<style>(.*?)</style>", answer.text, re.DOTALL)
    hashes = [base64.b64encode(hashlib.sha256(style.encode()).digest()).decode() for style in styles]
    assert policy["style-src"] == " ".join(f"'sha256-{each}'" for each in hashes), "browsers would show it unstyled"
    assert not re.search(r"<script|<img|<form|\son\w+=|\sstyle=|javascript:", answer.text)
    assert answer.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("path", PATHS)
def test_a_page_shows_nothing_of_the_daemon(server: Running, path: str) -> None:
    server.client(ANNA_TOKEN).post("/v1/jobs", json={"run": "python secret.py", "name": "precious"})
    text = server.client(None).get(path).text
    for secret in ("precious", "secret.py", "anna", "node0", ADMIN_TOKEN, ANNA_TOKEN, str(server.service.logs)):
        assert secret not in text
    assert text == server.client(ADMIN_TOKEN).get(path).text, "the same for all"


def test_the_first_page_says_how_to_talk_to_the_daemon(server: Running) -> None:
    text = server.client(None).get(f"{ROOT}/about").text
    assert "TRINE_API" in text and "Authorization: Bearer TOKEN" in text and "/openapi.json" in text


@pytest.mark.parametrize("path", ["/ui/../v1/jobs", "/ui/%2e%2e/v1/jobs", "/ui//v1/jobs", "/uix", "/UI"])
def test_no_way_leads_from_the_pages_to_the_api(server: Running, path: str) -> None:
    client = server.client(None)
    request = client.build_request("GET", "/")
    request.url = request.url.copy_with(raw_path=path.encode())
    assert client.send(request).status_code in (401, 404)


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
def test_pages_are_only_read(server: Running, method: str) -> None:
    assert server.client(None).request(method, ROOT, content=b"x").status_code == 405


def test_pages_are_not_part_of_the_api_description(server: Running) -> None:
    described = httpx.get(f"{server.url}/openapi.json", headers={"Authorization": f"Bearer {ADMIN_TOKEN}"}).json()
    assert not [path for path in described["paths"] if is_page(path)]


def test_a_new_page_is_one_new_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "moon_page.py").write_text(
        "from trine.server.dashboard.pages import Page\nPAGE = Page('/moon', 'Moon & Co', lambda: '<p>cheese</p>')\n"
    )
    monkeypatch.setattr(dashboard, "__path__", [*dashboard.__path__, str(tmp_path)])
    with running(FakeService(tmp_path), Limits(), FakeAuth()) as server:
        answer = server.client(None).get("/ui/moon")
        assert answer.status_code == 200 and "<p>cheese</p>" in answer.text
        assert "<title>Moon &amp; Co</title>" in answer.text
        assert "content-security-policy" in answer.headers
        assert server.client(None).get("/ui").status_code == 200
