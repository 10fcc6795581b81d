"""The settings of the engine ``kubernetes`` and how it is opened: what is wrong with them, or with the cluster behind
them, is found here, before anything is started. How jobs run there is in ``executor``."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from trine.core.cluster import Cluster
from trine.core.errors import InputError
from trine.core.params import param
from trine.executor.attempt.remote import EngineUnreachable
from trine.executor.attempt.state_dir import own_id
from trine.executor.base import Capabilities, NodeInfo, Unreachable
from trine.executor.kubernetes.api import WHERE, ApiRefused, KubernetesApi, load_configuration
from trine.executor.kubernetes.claims import OLDEST, SLICES, WithGpus, published, with_devices
from trine.executor.kubernetes.executor import KubernetesExecutor
from trine.executor.kubernetes.foreign_pods import ForeignRules
from trine.executor.kubernetes.inventory import NodeRules, read_nodes
from trine.executor.kubernetes.pods import PodSettings
from trine.executor.kubernetes.watched import Times
from trine.inputs.job_rules import LABEL, USER

ID_FILE, KEY_FILE = "kubernetes-id", "kubernetes-key"
"""In the state directory: what its pods are labelled with, and what the tokens of its attempts are made by."""
_KEY_BYTES = 32
_OLDEST = (1, 20)
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_VERSION = re.compile(r"v(\d+)\.(\d+)")
_UNAUTHORIZED, _FORBIDDEN, _NOT_FOUND = 401, 403, 404
_PASSING_S = 10.0
"""How long calls may be forbidden: a server that was just started does not know its roles yet."""


@dataclass
class KubernetesEngine:
    """Jobs as pods on the nodes of a Kubernetes cluster, placed by trine."""

    name: ClassVar[str] = "kubernetes"
    kubeconfig: str = param("", "path of a kubeconfig; empty: KUBECONFIG, or the service account inside a pod")
    context: str = param("", "the context of the kubeconfig; empty: its current one")
    namespace: str = param("", "the namespace of the pods; empty: that of the context, or trine")
    image: str = param("trine:latest", "the image of the pods: Python 3.11 or newer with trine, and what jobs need")
    python: str = param("python3", "Python in the image")
    service_account: str = param("", "the service account of the pods; empty: the default one, without its token")
    node_selector: str = param("", "labels of the nodes that are scheduled, such as pool=training")
    gpu_resource: str = param("nvidia.com/gpu", "the resource that counts GPUs")
    rack_label: str = param("topology.kubernetes.io/rack", "the label of nodes that names their rack; else the zone")
    type_label: str = param("nvidia.com/gpu.product", "the label of nodes that names the type of their GPUs")
    tolerations: tuple[str, ...] = param(("nvidia.com/gpu",), "keys of taints that pods tolerate")
    claim: str = param("", "the PersistentVolumeClaim of the state directory, for checkpoints of jobs that name none")
    cpus_per_gpu: float | None = param(None, "cores per GPU; by default no limit", minimum=0.001)
    memory_per_gpu_mib: int | None = param(None, "memory per GPU in MiB; by default no limit", minimum=1)
    api_url: str = param("", "the daemon's API as pods reach it; empty: as programs on the daemon's machine do")
    api_ca: str = param("", "path of the certificate that the daemon's API is checked by; empty: those of the image")
    cordon: bool = param(True, "cordon nodes in Kubernetes, too, when they are drained here")
    device_class: str = param(
        "", "ask for GPUs by claims of this DeviceClass (1.34 or newer), so that placements may choose by chip"
    )
    device_driver: str = param("", "the driver that publishes the devices; empty: named like the class")
    whole_nodes: bool = param(False, "a pod takes all GPUs of its node, so that placements may choose by chip")
    scheduler_name: str = param("trine", "what pods name as their scheduler; another one per daemon of a cluster")
    other_pods: bool = param(True, "place pods that others make with this schedulerName, too")
    namespaces: tuple[str, ...] = param(
        (), "whose pods of others are: NAMESPACE=USER or NAMESPACE=USER/QUEUE; else user kube.NAMESPACE, default queue"
    )
    preempt_other_pods: bool = param(False, "pods of others may be deleted for other jobs; their work is lost")
    look_s: float = param(0.25, "seconds between two looks at what running jobs report", minimum=0.01)
    exchange_s: float = param(1.0, "seconds between two exchanges of a pod with the daemon", minimum=0.05)
    timeout_s: float = param(
        10.0, "seconds that the API server may take to answer before it counts as away", minimum=0.1
    )
    pending_s: float = param(120.0, "seconds that a pod may take to start before its job is placed anew", minimum=0.1)
    silent_s: float = param(40.0, "seconds without a heartbeat after which a node counts as down", minimum=1.0)
    resync_s: float = param(
        300.0, "seconds between two lists of all objects; between them changes are watched", minimum=1.0
    )
    described: Cluster | None = None
    """What was asked for last: nodes that it does not name stay out when they join."""

    def find_nodes(self, described: Cluster | None) -> list[NodeInfo] | Unreachable:
        self.described = described
        self._check_settings()
        api = self._connect()
        try:
            self._check_version(api)
            self._check_namespace(api)
            query = {"labelSelector": self.node_selector} if self.node_selector else {}
            objects = self._patiently(lambda: api.get("/api/v1/nodes", **query))["items"]
            with_gpus = self._published(api) if self.device_class else None
        except EngineUnreachable as error:
            return Unreachable(str(error))
        finally:
            api.close()
        nodes = read_nodes(objects, self.rules, with_gpus)
        if not nodes:
            chosen = f"with the labels {self.node_selector} " if self.node_selector else ""
            wanted = f"devices of {self.rules.driver}" if self.device_class else self.gpu_resource
            found = f"none of {len(objects)} nodes {chosen}has {wanted}"
            raise InputError(WHERE, found, "nodes with GPUs (engine.gpu_resource, engine.node_selector)")
        return nodes

    def capabilities(self, nodes: Sequence[NodeInfo]) -> Capabilities:  # noqa: ARG002 - alike everywhere
        # Kubelets choose which of a node's GPUs a pod gets, unless it gets all; it runs under the account of its image.
        return Capabilities(
            exact_gpus=self.whole_nodes or bool(self.device_class),
            shares_gpus=False,
            separates_users=False,
            uses_api=True,
        )

    def open(self, state_dir: Path, nodes: Sequence[NodeInfo]) -> KubernetesExecutor:
        self._check_settings()
        state_dir.mkdir(parents=True, exist_ok=True)
        state_id, key = own_id(state_dir, ID_FILE), bytes.fromhex(own_id(state_dir, KEY_FILE, _KEY_BYTES))
        return KubernetesExecutor(
            state_dir,
            nodes,
            self._connect(),
            state_id,
            key,
            self.pods,
            self.rules,
            self.times,
            node_selector=self.node_selector,
            may_cordon=self.cordon,
            # Pods of others request a number of GPUs; with claims, the nodes have no such resource.
            foreign=self.foreign if self.other_pods and not self.device_class else None,
        )

    @property
    def rules(self) -> NodeRules:
        return NodeRules(
            self.gpu_resource,
            self.rack_label,
            self.type_label,
            self.tolerations,
            self.described,
            (self.device_driver or self.device_class) if self.device_class else "",
            self.whole_nodes,
        )

    @property
    def foreign(self) -> ForeignRules:
        """Whose pods of others are, by their namespace."""
        owners = dict(_owner(text) for text in self.namespaces)
        return ForeignRules(self.scheduler_name, self.gpu_resource, owners, self.preempt_other_pods)

    @property
    def times(self) -> Times:
        return Times(
            look_s=self.look_s,
            exchange_s=self.exchange_s,
            pending_s=self.pending_s,
            silent_s=self.silent_s,
            resync_s=self.resync_s,
        )

    @property
    def pods(self) -> PodSettings:
        """What all pods have in common."""
        return PodSettings(
            self._namespace(),
            self.scheduler_name,
            image=self.image,
            python=self.python,
            gpu_resource=self.gpu_resource,
            device_class=self.device_class,
            service_account=self.service_account,
            tolerations=self.tolerations,
            claim=self.claim,
            cpus_per_gpu=self.cpus_per_gpu,
            memory_per_gpu_mib=self.memory_per_gpu_mib,
            api_url=self.api_url,
            api_ca=_read_certificate(self.api_ca),
        )

    def _connect(self) -> KubernetesApi:
        return KubernetesApi(load_configuration(self.kubeconfig, self.context)[0], self.timeout_s)

    def _namespace(self) -> str:
        return self.namespace or load_configuration(self.kubeconfig, self.context)[1] or "trine"

    def _check_settings(self) -> None:
        if self.api_url and not self.api_url.startswith("https://") and not _is_loopback(self.api_url):
            expected = "an https:// address: tokens of jobs go there"
            raise InputError("--set engine.api_url", f"found {self.api_url!r}", expected)
        _read_certificate(self.api_ca)
        if not _NAME.fullmatch(self.scheduler_name):
            expected = "a name of small letters, digits and -"
            raise InputError("--set engine.scheduler_name", f"found {self.scheduler_name!r}", expected)
        if self.device_class and self.whole_nodes:
            raise InputError("--set engine.whole_nodes", "true together with engine.device_class", "one of the two")
        if len(self.foreign.owners) < len(self.namespaces):
            raise InputError("--set engine.namespaces", "a namespace twice", "one user for every namespace")

    def _check_version(self, api: KubernetesApi) -> None:
        """Older servers drop what they do not know without a word."""
        text = str(self._patiently(lambda: api.get("/version")).get("gitVersion", ""))
        match = _VERSION.match(text)
        version = (int(match[1]), int(match[2])) if match else (0, 0)
        if version < _OLDEST:
            oldest = ".".join(map(str, _OLDEST))
            raise InputError(WHERE, f"the API server is of version {text or 'unknown'}", f"version {oldest} or newer")
        if self.device_class and version < OLDEST:
            expected = f"{'.'.join(map(str, OLDEST))} or newer for claims, or engine.whole_nodes=true"
            raise InputError("--set engine.device_class", f"the API server is of version {text}", expected)

    def _published(self, api: KubernetesApi) -> WithGpus:
        """What gives nodes the GPUs that the driver publishes."""
        slices = self._patiently(lambda: api.get(SLICES))["items"]
        return partial(with_devices, devices=published(slices, self.rules.driver), taken=set(), ours=())

    def _check_namespace(self, api: KubernetesApi) -> None:
        """That pods can be listed there says nothing of whether the namespace exists: one is made that is not kept."""
        namespace = self._namespace()
        body = {
            "metadata": {"generateName": "trine-check-"},
            "spec": {"schedulerName": self.scheduler_name, "containers": [{"name": "check", "image": self.image}]},
        }
        path = f"/api/v1/namespaces/{namespace}/pods?dryRun=All"
        try:
            self._patiently(lambda: api.create(path, body))
        except ApiRefused as refusal:
            if refusal.status == _NOT_FOUND:
                expected = "engine.namespace, a namespace that exists"
                raise InputError(WHERE, f"there is no namespace {namespace!r}", expected) from None
            raise InputError(WHERE, f"Kubernetes takes no pods: {refusal}", "pods that may be made there") from None

    def _patiently(self, call: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """The answer to a call; ``InputError`` that names the credential or the right that is missing."""
        until_s = time.monotonic() + _PASSING_S
        while True:
            try:
                return call()
            except ApiRefused as refusal:
                if refusal.status == _UNAUTHORIZED:
                    expected = "a credential that is valid and has not expired"
                    raise InputError(WHERE, "the API server does not accept the credential", expected) from None
                if refusal.status != _FORBIDDEN:
                    raise
                if time.monotonic() > until_s:
                    expected = "the rights of deploy/kubernetes/rbac.yaml"
                    raise InputError(WHERE, f"a right is missing: {refusal}", expected) from None
            time.sleep(0.5)


def _owner(text: str) -> tuple[str, tuple[str, str]]:
    """``NAMESPACE=USER`` or ``NAMESPACE=USER/QUEUE``: the namespace, its user and queue."""
    namespace, _, owner = text.partition("=")
    user, _, queue = owner.partition("/")
    if not _NAME.fullmatch(namespace) or not re.fullmatch(USER, user or "-") or not re.fullmatch(LABEL, queue):
        raise InputError("--set engine.namespaces", f"found {text!r}", "NAMESPACE=USER or NAMESPACE=USER/QUEUE")
    return namespace, (user, queue)


def _read_certificate(path: str) -> str:
    try:
        return Path(path).read_text() if path else ""
    except OSError as error:
        raise InputError("--set engine.api_ca", f"{path}: {error.strerror}", "a certificate in PEM") from None


def _is_loopback(url: str) -> bool:
    return url.startswith(("http://127.", "http://localhost", "http://[::1]"))


ENGINE = KubernetesEngine
