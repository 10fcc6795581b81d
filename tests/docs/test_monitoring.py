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
    """Of a daemon that has made predictions, of which some have come true."""
    site = Site(home)
    daemon = await site.up()
    daemon.forecasts.last = {"draws": 100, "made_at_s": daemon.now()}
    for score in (daemon.forecasts.scores.starts, daemon.forecasts.scores.ends):
        score.add(0.0, 1.0, 2.0, 1.5)
    text = daemon.metrics().decode()
    await site.crash()
    return text


def test_every_metric_is_in_a_panel() -> None:
    shown = {_base(name) for panel in _panels() for each in panel["targets"] for name in _NAME.findall(each["expr"])}
    assert shown == TABLE.keys()


def test_every_metric_named_is_exposed_with_the_labels_that_are_asked_for(tmp_path: Path) -> None:
    import asyncio

    text = asyncio.run(_exposition(tmp_path))
    families = set(re.findall(r"^# TYPE (trine_\w+) ", text, re.MULTILINE))
    for name in {_base(name) for expression in _expressions() for name in _NAME.findall(expression)}:
        assert name in families, f"{name} is not exposed by a daemon"
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


_HOURS = 8
"""How long the series of ``_FIRES`` are."""
_FIRES = {
    "TrineDown": (0.1, ['up{job="trine",instance="a"} 0']),
    "TrineJournalFailing": (0.1, ["trine_journal_failing 1"]),
    "TrineHostTrouble": (0.2, ["trine_host_trouble 1"]),
    "TrineEngineDown": (0.2, ["trine_engine_up 0"]),
    "TrinePolicyFallback": (0.1, ["trine_policy_fallback 1"]),
    "TrineInternalErrors": (0.1, ["trine_internal_errors_total 0+1x"]),
    "TrineSkippedRecords": (0.1, ["trine_skipped_records 1"]),
    "TrineJobsSetAside": (0.5, ['trine_jobs{state="set aside"} 1']),
    "TrineGpuDrifted": (1.0, ["trine_gpu_flagged 2"]),
    "TrineLongWait": (1.0, ["trine_oldest_wait_seconds 90000"]),
    "TrineIdleWhileJobsWait": (
        2.0,
        [
            *('trine_gpus{instance="a",type="t",use="free"} 2', 'trine_gpus{instance="a",type="u",use="free"} 1'),
            *('trine_gpus{instance="a",type="t",use="held"} 7', 'trine_queue_waiting_gpus{instance="a",queue="q"} 8'),
        ],
    ),
    "TrineManyFailures": (
        1.0,
        [
            'trine_exits_total{instance="a",outcome="failed"} 0+2x',
            'trine_exits_total{instance="a",outcome="done"} 0+1x',
        ],
    ),
    "TrineWorkLost": (7.0, ["trine_lost_work_seconds_total 0+120x"]),
    "TrineClockSkew": (1.0, ["trine_clock_skew_seconds -90"]),
    "TrineWebhookFailing": (0.1, ['trine_webhook_deliveries_total{result="given up"} 0+1x']),
    "TrineForecastFailing": (2.0, ["trine_forecast_failing 1"]),
}
"""Alert: after so many hours of such series it fires. One sample a minute."""
_WELL = [
    *('up{job="trine",instance="a"} 1', "trine_journal_failing 0", "trine_host_trouble 0", "trine_engine_up 1"),
    *(
        "trine_policy_fallback 0",
        "trine_internal_errors_total 3",
        "trine_skipped_records 0",
        "trine_forecast_failing 0",
    ),
    *('trine_jobs{state="set aside"} 0', 'trine_jobs{state="failed"} 9', "trine_gpu_flagged 0"),
    *("trine_oldest_wait_seconds 3600", 'trine_gpus{instance="a",type="t",use="free"} 2'),
    *('trine_gpus{instance="a",type="t",use="held"} 8', 'trine_queue_waiting_gpus{instance="a",queue="q"} 8'),
    *('trine_exits_total{instance="a",outcome="failed"} 0+1x', 'trine_exits_total{instance="a",outcome="done"} 0+2x'),
    *("trine_lost_work_seconds_total 0+10x", "trine_clock_skew_seconds 1"),
    *(f'trine_webhook_deliveries_total{{result="{result}"}} 5' for result in ("dropped", "given up")),
    'trine_webhook_deliveries_total{result="delivered"} 0+7x',
]


def _rule_test(series: list[str], firing: dict[tuple[str, float], bool]) -> dict[str, Any]:
    """Whether alerts fire after so many hours of these series; with which labels and words does not matter here."""
    inputs = [{"series": name, "values": f"{values}{60 * _HOURS}"} for name, values in map(_split, series)]
    expected = [
        {
            "expr": f'count(ALERTS{{alertname="{alert}",alertstate="firing"}}) or vector(0)',
            "eval_time": f"{hours * 60:.0f}m",
            "exp_samples": [{"labels": "{}", "value": int(fires)}],
        }
        for (alert, hours), fires in firing.items()
    ]
    return {"interval": "1m", "input_series": inputs, "promql_expr_test": expected}


def _split(series: str) -> tuple[str, str]:
    """Name and values, which are to be repeated so many times."""
    name, _, values = series.rpartition(" ")
    return name, values if values.endswith("x") else f"{values}+0x"


def test_every_alert_has_series_under_which_it_is_tried() -> None:
    assert _FIRES.keys() == {rule["alert"] for rule in _rules()}


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool (Debian: prometheus) is not installed here")
def test_every_alert_fires_when_it_should_and_not_when_all_is_well(tmp_path: Path) -> None:
    tests = [_rule_test(series, {(alert, hours): True}) for alert, (hours, series) in _FIRES.items()]
    tests += [_rule_test(_WELL, {(alert, hours): False for alert in _FIRES for hours in (1, _HOURS)})]
    file = tmp_path / "tests.yaml"
    file.write_text(json.dumps({"rule_files": [str(ALERTS)], "evaluation_interval": "1m", "tests": tests}))
    done = subprocess.run(["promtool", "test", "rules", str(file)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
