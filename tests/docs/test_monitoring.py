"""The Grafana dashboard and the alert rules of ``deploy/``: well-formed, and of metrics that a daemon really has."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.docs.pages import ROOT
from tests.server.site import Site
from trine.server.metrics import TABLE

DASHBOARD, ALERTS = ROOT / "deploy/grafana-dashboard.json", ROOT / "deploy/prometheus-alerts.yaml"
_NAME = re.compile(r"\btrine_[a-z_]+")
_SELECTOR = re.compile(r"\b(trine_[a-z_]+)\{([^}]*)\}")
_LABEL = re.compile(r'(\w+)\s*=~?\s*"')


def _panels() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(DASHBOARD.read_text())["panels"]
    return found


def _rules() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]


def _expressions() -> list[str]:
    shown = [target["expr"] for panel in _panels() for target in panel["targets"]]
    return [*shown, *(rule["expr"] for rule in _rules())]


def _base(name: str) -> str:
    """The metric behind a series of a histogram."""
    return re.sub("_(bucket|sum|count)$", "", name) if name not in TABLE else name


def test_every_metric_named_is_one_of_the_daemon() -> None:
    named = {_base(name) for text in _expressions() for name in _NAME.findall(text)}
    assert named <= TABLE.keys(), "no metric that does not exist"


async def _exposition(home: Path) -> str:
    site = Site(home)
    daemon = await site.up()
    text = daemon.metrics().decode()
    await site.crash()
    return text


def test_every_metric_named_is_exposed_with_the_labels_that_are_asked_for(tmp_path: Path) -> None:
    import asyncio

    text = asyncio.run(_exposition(tmp_path))
    families = set(re.findall(r"^# TYPE (trine_\w+) ", text, re.MULTILINE))
    for name in {_base(name) for expression in _expressions() for name in _NAME.findall(expression)}:
        assert name in families, f"{name} is not exposed by a fresh daemon"
    known = {"job", "instance"}  # which Prometheus adds
    labels = {
        "trine_jobs": {"state"},
        "trine_gpus": {"type", "use"},
        "trine_exits_total": {"outcome"},
        "trine_decisions_total": {"action", "why"},
        "trine_queue_waiting_gpus": {"queue"},
        "trine_webhook_deliveries_total": {"result"},
    }
    for name, selector in (found for expression in _expressions() for found in _SELECTOR.findall(expression)):
        assert set(_LABEL.findall(selector)) <= known | labels.get(name, set()), f"{name}{{{selector}}}"


def test_panels_have_titles_and_places_of_their_own() -> None:
    panels = _panels()
    assert len({panel["id"] for panel in panels}) == len(panels) == len({panel["title"] for panel in panels})
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken and at["x"] + at["w"] <= 24, panel["title"]
        taken |= cells


def test_alerts_have_a_severity_and_say_what_to_do() -> None:
    rules = _rules()
    assert len({rule["alert"] for rule in rules}) == len(rules)
    for rule in rules:
        assert rule["labels"]["severity"] in ("critical", "warning", "info"), rule["alert"]
        assert rule["annotations"]["summary"].endswith(".") and rule["annotations"]["description"], rule["alert"]


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool (Debian: prometheus) is not installed here")
def test_prometheus_accepts_every_rule_and_every_expression(tmp_path: Path) -> None:
    plain = [re.sub(r"\$(job|instance)", ".*", text) for text in _expressions()]
    rules = [{"record": f"panel:{number}", "expr": text} for number, text in enumerate(plain)]
    panels = tmp_path / "panels.yaml"
    panels.write_text(json.dumps({"groups": [{"name": "panels", "rules": rules}]}))
    for file in (ALERTS, panels):
        done = subprocess.run(["promtool", "check", "rules", str(file)], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
