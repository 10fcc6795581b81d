"""Which pods of others belong together, whose they are and which nodes they may go to; what their owners are told, and
how often. Without a server."""

from __future__ import annotations

from typing import Any

import pytest

from trine.executor.base import NodeGpu, NodeInfo
from trine.executor.kubernetes.api import ApiRefused, KubernetesApi
from trine.executor.kubernetes.foreign_pods import ForeignRules, Workload, end_of, members, user_of, workloads
from trine.executor.kubernetes.node_fit import fits
from trine.executor.kubernetes.pod_reports import PodReports
from trine.inputs.job_spec import parse_jobs

RULES = ForeignRules()
TAINT = {"key": "team", "value": "b", "effect": "NoSchedule"}


def pod(
    name: str, gpus: int = 1, gang: str = "", made: str = "10:00", namespace: str = "a", **spec: Any
) -> dict[str, Any]:
    limits = {"limits": {"nvidia.com/gpu": str(gpus)}}
    labels = dict(zip(("trine.dev/gang", "trine.dev/gang-size"), gang.split(":"), strict=True)) if gang else {}
    metadata = {"name": name, "namespace": namespace, "uid": f"uid-{namespace}-{name}", "creationTimestamp": made}
    return {
        "metadata": {**metadata, "labels": labels},
        "spec": {"schedulerName": "trine", "containers": [{"resources": limits}], **spec},
        "status": {"phase": "Pending"},
    }


def node(name: str, **labels: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": labels}, "spec": {}}


NODES = {
    "n0": node("n0", kind="old", pool="x"),
    "n1": node("n1", kind="old"),
    "n2": node("n2", kind="new"),
}
INFOS = [NodeInfo(name, (NodeGpu(0, kind), NodeGpu(1, kind))) for name, kind in zip(NODES, "aab", strict=True)]


def found(*pods: dict[str, Any], placed: tuple[str, ...] = ()) -> list[Workload]:
    return workloads(pods, placed, NODES, INFOS, RULES)


def test_pods_of_one_gang_start_together_and_others_alone() -> None:
    got = found(pod("w1", 2, "g:2"), pod("single", 1), pod("w0", 2, "g:2"), pod("w0", 2, "g:2", namespace="b"))
    jobs = {work.job.name: work.job for work in got}
    assert (jobs["a:g"].gpus, jobs["a:g"].nodes, jobs["a:single"].gpus) == (4, 2, 1)
    assert "1 of 2 pods exist" in jobs["b:w0"].refused, "a gang does not reach into other namespaces"


def test_a_gang_is_the_same_whatever_order_it_is_seen_in_and_another_one_with_another_pod() -> None:
    one, two, three = (pod(name, 1, "g:2", made) for name, made in (("x", "10:01"), ("y", "10:02"), ("z", "10:03")))
    assert found(one, two)[0].job == found(two, one)[0].job
    assert found(one, two)[0].job.key == found(three, one, two)[0].job.key, "who comes later changes nothing"
    assert found(two, three)[0].job.key != found(one, two)[0].job.key
    assert found(one, two, placed=("uid-a-x", "uid-a-y")) == [], "what was placed does not ask any more"


@pytest.mark.parametrize(
    ("pods", "why"),
    [
        ([pod("x", 1, "g:two")], "is 'two'; expected the number of pods"),
        ([pod("x", 1, "g:0")], "is '0'; expected the number of pods"),
        ([pod("x", 1, "g:99999999")], "expected the number of pods"),
        ([pod("x", 1, "g:2"), pod("y", 1, "g:3")], "different sizes (2, 3)"),
        ([pod("x", 1, "g:2"), pod("y", 2, "g:2")], "different numbers of GPUs"),
        ([pod("x", 0)], "asks for no GPUs"),
        ([pod("x", nodeSelector={"kind": "none"})], "No node that trine schedules"),
        ([pod("x", nodeSelector={"pool": "x"})], "leave 1 of 2 nodes with GPUs of its types"),
    ],
)
def test_what_cannot_be_placed_says_why(pods: list[dict[str, Any]], why: str) -> None:
    assert all(why in work.job.refused for work in found(*pods))


def test_a_node_selector_that_means_a_type_keeps_the_pod_to_it() -> None:
    assert found(pod("x", nodeSelector={"kind": "old"}))[0].job.types == ("a",)
    assert found(pod("x"))[0].job.types == ()


@pytest.mark.parametrize(
    ("spec", "taints", "expected"),
    [
        ({}, [], True),
        ({}, [TAINT], False),
        ({}, [{**TAINT, "effect": "PreferNoSchedule"}], True),
        ({"tolerations": [{"key": "team", "operator": "Exists"}]}, [TAINT], True),
        ({"tolerations": [{"key": "team", "value": "b"}]}, [TAINT], True),
        ({"tolerations": [{"key": "team", "value": "c"}]}, [TAINT], False),
        ({"tolerations": [{"operator": "Exists"}]}, [TAINT], True),
        ({}, [{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}], True),
    ],
)
def test_taints_are_read_as_kubernetes_reads_them(spec: dict[str, Any], taints: list[Any], expected: bool) -> None:
    assert fits(pod("x", **spec), {**NODES["n0"], "spec": {"taints": taints}}) is expected


@pytest.mark.parametrize(
    ("operator", "values", "expected"),
    [
        ("In", ["old", "x"], True),
        ("NotIn", ["old"], False),
        ("Exists", [], True),
        ("DoesNotExist", [], False),
        ("Gt", ["3"], False),
    ],
)
def test_required_affinity_is_read_as_kubernetes_reads_it(operator: str, values: list[str], expected: bool) -> None:
    term = {"matchExpressions": [{"key": "kind", "operator": operator, "values": values}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    assert fits(pod("x", affinity={"nodeAffinity": required}), NODES["n0"]) is expected


def test_the_user_of_a_namespace_is_nobody_else_and_a_user_that_trine_knows() -> None:
    names = [user_of(name) for name in ("root", "alice", "x" * 63, "x" * 62 + "y")]
    assert names[:2] == ["kube.root", "kube.alice"] and len(set(names)) == 4
    for name in names:
        assert parse_jobs(f'{{"run": "true", "user": "{name}"}}')[0].user == name


def test_pods_are_dealt_out_whole_or_not_at_all() -> None:
    (pair,) = found(pod("x", 2, "g:2"), pod("y", 2, "g:2"))
    assert [(one["name"], one["node"]) for one in members(pair, [("n0", (0, 1)), ("n2", (0, 1))])] == [
        ("x", "n0"),
        ("y", "n2"),
    ]
    assert members(pair, [("n0", (0,)), ("n2", (0, 1, 2))]) == []


def test_the_end_of_a_pod_is_what_its_kubelet_saw() -> None:
    def ended(phase: str, *codes: int, **more: Any) -> dict[str, Any]:
        states = [{"state": {"terminated": {"exitCode": code, "reason": "Error"}}} for code in codes]
        return {**pod("x", nodeName="n0"), "status": {"phase": phase, "containerStatuses": states, **more}}

    assert end_of(ended("Running"), ()) is None
    assert end_of(ended("Succeeded", 0), ()) == {"code": 0, "reason": ""}
    assert (end_of(ended("Failed", 0, 7), ()) or {})["code"] == 7
    assert (end_of(ended("Failed", reason="OutOfcpu"), ()) or {})["reason"] == "pod x failed: OutOfcpu"
    assert (end_of(ended("Running"), ("n0",)) or {})["reason"] == "n0 is out of service"


class Heard(KubernetesApi):
    """Keeps what is said."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.events: list[str] = []

    def patch(self, path: str, body: Any, kind: str = "") -> dict[str, Any]:
        self.said.append(body["status"]["conditions"][0]["message"])
        return {}

    def create(self, path: str, body: Any) -> dict[str, Any]:
        if body["metadata"]["name"] in self.events:
            raise ApiRefused(409, "exists")
        self.events.append(body["metadata"]["name"])
        return {}


def test_owners_are_told_what_is_new_and_seldom() -> None:
    now, api = [0.0], Heard()
    reports = PodReports(api, "trine", lambda call: call(), lambda: now[0])
    waiting = found(pod("x"))
    for free in (0, 0, 1, 2, 3, 4):
        reports.note({waiting[0].job.key: f"{free} GPUs free."})
        reports.bring(waiting)
    assert api.said == ["0 GPUs free.", "1 GPUs free.", "2 GPUs free."] and len(api.events) == 3
    now[0] = 61.0
    reports.bring(waiting)
    assert api.said[-1] == "4 GPUs free."
    condition = {"type": "PodScheduled", "status": "False", "message": "4 GPUs free."}
    now[0] = 200.0
    reports.bring(found({**pod("x"), "status": {"phase": "Pending", "conditions": [condition]}}))
    assert len(api.said) == 4, "what stands there already is not said again"
