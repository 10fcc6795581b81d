"""Whether a node is one that a pod asks for: node selector, required node affinity, taints and tolerations, as the
scheduler of Kubernetes reads them. What passes by itself (cordons, nodes that are not ready) is not looked at here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

_PASSING = "node.kubernetes.io/"
"""Taints by which Kubernetes itself says that a node takes no pods now."""


def fits(pod: Mapping[str, Any], node: Mapping[str, Any]) -> bool:
    spec, labels = pod["spec"], node["metadata"].get("labels") or {}
    if any(labels.get(name) != value for name, value in (spec.get("nodeSelector") or {}).items()):
        return False
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    if required is not None and not any(_term_holds(term, node) for term in required.get("nodeSelectorTerms") or ()):
        return False
    taints = (node.get("spec") or {}).get("taints") or ()
    return all(_is_tolerated(taint, spec.get("tolerations") or ()) for taint in taints)


def _term_holds(term: Mapping[str, Any], node: Mapping[str, Any]) -> bool:
    """All of a term must hold; an empty one never does."""
    by_label, by_field = term.get("matchExpressions") or (), term.get("matchFields") or ()
    labels, fields = node["metadata"].get("labels") or {}, {"metadata.name": node["metadata"]["name"]}
    if not by_label and not by_field:
        return False
    return all(_holds(one, labels) for one in by_label) and all(_holds(one, fields) for one in by_field)


def _holds(expression: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    found, values = labels.get(expression["key"]), list(expression.get("values") or ())
    operator = expression["operator"]
    if operator == "In":
        return found in values
    if operator == "NotIn":
        return found not in values
    if operator == "Exists":
        return found is not None
    if operator == "DoesNotExist":
        return found is None
    try:
        number, bound = int(found or ""), int(values[0])
    except (ValueError, IndexError):
        return False
    return number > bound if operator == "Gt" else operator == "Lt" and number < bound


def _is_tolerated(taint: Mapping[str, Any], tolerations: Sequence[Mapping[str, Any]]) -> bool:
    if taint["effect"] == "PreferNoSchedule" or taint["key"].startswith(_PASSING):
        return True
    return any(_tolerates(one, taint) for one in tolerations)


def _tolerates(toleration: Mapping[str, Any], taint: Mapping[str, Any]) -> bool:
    if toleration.get("effect") not in (None, "", taint["effect"]):
        return False
    key, exists = toleration.get("key") or "", toleration.get("operator") == "Exists"
    if not key:
        return exists
    return bool(key == taint["key"] and (exists or (toleration.get("value") or "") == (taint.get("value") or "")))
