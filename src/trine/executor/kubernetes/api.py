"""Calls of the Kubernetes API: JSON in, JSON out, over a pool of connections. Credentials come from the official client
(kubeconfig with its plug-ins, service accounts, renewal of tokens); its models are not used, since they take time and
drop what they do not know."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from trine.core.errors import InputError
from trine.executor.attempt.remote import EngineRefused, EngineUnreachable

if TYPE_CHECKING:
    import urllib3

WHERE = "--engine kubernetes"
_SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_CONNECTIONS = 16
MERGE_PATCH, STRATEGIC_PATCH = "application/merge-patch+json", "application/strategic-merge-patch+json"


class ApiRefused(EngineRefused):
    """The server said no; ``status`` is that of HTTP."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class KubernetesApi:
    """One cluster as one user sees it. Safe to call from any thread. Raises ``EngineUnreachable`` where there was no
    answer, ``ApiRefused`` where there was one."""

    def __init__(self, configuration: Any, timeout_s: float) -> None:
        import urllib3  # comes with the official client, which need not be there to read settings

        self._errors = (urllib3.exceptions.HTTPError, OSError)
        self._timeout = urllib3.Timeout
        self._configuration, self._timeout_s = configuration, timeout_s
        self._host = str(configuration.host).rstrip("/")
        self.calls = 0
        """How many requests were made so far."""
        self._lock = threading.Lock()
        self._watches: set[urllib3.BaseHTTPResponse] = set()
        """Those that wait for the server; their connections are not the pool's meanwhile."""
        self._ended = False
        self._pool = urllib3.PoolManager(
            maxsize=_CONNECTIONS,
            block=False,
            retries=False,
            cert_reqs="CERT_REQUIRED" if configuration.verify_ssl else "CERT_NONE",
            ca_certs=configuration.ssl_ca_cert,
            cert_file=configuration.cert_file,
            key_file=configuration.key_file,
            server_hostname=configuration.tls_server_name or None,
        )

    def end_watches(self) -> None:
        """No watch waits for the server any more, nor begins anew: each ends in its own thread, which closes its
        connection."""
        with self._lock:
            self._ended, watches = True, list(self._watches)
        for response in watches:
            # One that has just ended has no connection left; before urllib3 2.3 responses cannot be shut down.
            with suppress(AttributeError, RuntimeError, ValueError, OSError):
                response.shutdown()

    def close(self) -> None:
        self.end_watches()
        self._pool.clear()

    def get(self, path: str, **query: object) -> dict[str, Any]:
        return self.call("GET", path, query=query)

    def create(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        return self.call("POST", path, body)

    def patch(self, path: str, body: Mapping[str, Any], kind: str = MERGE_PATCH) -> dict[str, Any]:
        return self.call("PATCH", path, body, kind=kind)

    def delete(self, path: str, grace_s: int | None, uid: str = "") -> dict[str, Any]:
        """``grace_s`` ``None``: its own. ``uid``: only if it is still the same object."""
        body: dict[str, Any] = {"kind": "DeleteOptions", "apiVersion": "v1"}
        body |= {} if grace_s is None else {"gracePeriodSeconds": grace_s}
        return self.call("DELETE", path, body | ({"preconditions": {"uid": uid}} if uid else {}))

    def call(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        query: Mapping[str, object] | None = None,
        kind: str = "application/json",
    ) -> dict[str, Any]:
        response = self._request(method, path, body, query or {}, kind, self._timeout_s, stream=False)
        try:
            found = json.loads(response.data or b"{}")
        except ValueError:
            found = {"message": response.data[:200].decode(errors="replace")}
        return found if isinstance(found, dict) else {"items": found}

    def watch(self, path: str, timeout_s: float, **query: object) -> Iterator[dict[str, Any]]:
        """Events of a watch as they come; ends when the server ends it. One connection of its own."""
        asked = {**query, "watch": 1, "allowWatchBookmarks": "true", "timeoutSeconds": int(timeout_s)}
        # A server that says nothing for so much longer than it was asked to is gone.
        response = self._request("GET", path, None, asked, "", timeout_s + self._timeout_s, stream=True)
        try:
            with self._lock:
                self._watches.add(response)
                if self._ended:
                    return
            rest = b""
            for chunk in response.stream(1 << 16):
                *lines, rest = (rest + chunk).split(b"\n")
                yield from (json.loads(line) for line in lines if line)
        except (*self._errors, ValueError) as error:
            raise EngineUnreachable(f"the watch of {path} was cut: {_short(error)}") from None
        finally:
            with self._lock:
                self._watches.discard(response)
            response.close()

    def _request(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None,
        query: Mapping[str, object],
        kind: str,
        timeout_s: float,
        stream: bool,
    ) -> urllib3.BaseHTTPResponse:
        self.calls += 1
        url = f"{self._host}{path}" + (f"?{urlencode(query)}" if query else "")
        timeout = self._timeout(connect=self._timeout_s, read=timeout_s)
        data = None if body is None else json.dumps(body).encode()
        try:
            headers = {"Accept": "application/json", "User-Agent": "trine", **self._authorization()}
            headers |= {"Content-Type": kind} if data is not None else {}
            response = self._pool.request(
                method, url, body=data, headers=headers, timeout=timeout, preload_content=not stream
            )
            if response.status < 400:
                return response
            try:
                refusal = _refusal(response)  # reads what it says, which may be cut, too
            finally:
                response.close()
        except self._errors as error:
            raise EngineUnreachable(f"{self._host}: {_short(error)}") from None
        raise refusal

    def _authorization(self) -> dict[str, str]:
        """Asked for every call: the library renews tokens that expire, and knows under which name it keeps them."""
        settings = self._configuration.auth_settings().values()
        found = next((one["value"] for one in settings if one["key"].lower() == "authorization"), None)
        return {"Authorization": str(found)} if found else {}


def _refusal(response: urllib3.BaseHTTPResponse) -> Exception:
    try:
        message = str(json.loads(response.data)["message"])
    except (ValueError, KeyError, TypeError):
        message = f"HTTP {response.status} {response.reason}"
    if response.status in (429, 500, 502, 503, 504):
        return EngineUnreachable(f"the server answers {response.status}: {message}")
    return ApiRefused(response.status, message)


def _short(error: BaseException) -> str:
    """The innermost words of an error of a connection, without the object that it names."""
    reason = getattr(error, "reason", None)
    text = str(reason if isinstance(reason, BaseException) else error)
    return text.rpartition(">: ")[2].rpartition("): ")[2] if ">: " in text else text


def load_configuration(kubeconfig: str, context: str) -> tuple[Any, str]:
    """How to reach the cluster, and the namespace that is meant there unless another is named; ``InputError`` if that
    is not said anywhere. Inside a pod without a kubeconfig: its service account."""
    client, config = _library()
    configuration = client.Configuration()
    if not kubeconfig and (_SERVICE_ACCOUNT / "token").is_file():
        config.load_incluster_config(client_configuration=configuration)
        return configuration, (_SERVICE_ACCOUNT / "namespace").read_text().strip()
    source = kubeconfig or os.environ.get("KUBECONFIG") or "~/.kube/config"
    expected = "a kubeconfig (engine.kubeconfig, KUBECONFIG) that kubectl takes, too"
    if not any(Path(path).expanduser().is_file() for path in source.split(":")):
        raise InputError(WHERE, f"there is no kubeconfig {source}", expected)
    try:
        config.load_kube_config(source, context or None, configuration, persist_config=False)
        contexts, active = config.list_kube_config_contexts(source)
    except Exception as error:  # of many kinds: YAML, missing keys, plug-ins that fail
        raise InputError(WHERE, f"{source} cannot be used: {' '.join(str(error).split())}", expected) from None
    chosen = next((one for one in contexts if one["name"] == context), active)
    return configuration, str(chosen["context"].get("namespace", ""))


def _library() -> tuple[Any, Any]:
    try:
        from kubernetes import client, config
    except ImportError:
        expected = "pip install 'trine[kubernetes]'"
        raise InputError(WHERE, "the Python package kubernetes is not installed", expected) from None
    return client, config
