"""A small API server that this process plays, for what no real one at hand has: objects in memory, lists, watches,
merge patches, bindings, and claims whose allocation cannot be changed. It checks far less than a real one."""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qs, urlsplit

from trine.executor.kubernetes.api import KubernetesApi


class Conflict(Exception):  # noqa: N818 - an answer
    """Why a request cannot be carried out, with its status of HTTP."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class PlayedApiServer:
    """Collections by path; all namespaces of a kind are also one collection."""

    def __init__(self, version: str = "v1.34.0") -> None:
        self.version = version
        self.refused: dict[str, Conflict] = {}
        """By path: how the next creation there is refused."""
        self._objects: dict[str, dict[str, Any]] = {}
        self._changes = 0
        self._lock = threading.RLock()
        self._watches: list[tuple[str, dict[str, str], queue.Queue[dict[str, Any]]]] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def api(self, timeout_s: float = 10.0) -> KubernetesApi:
        known: dict[str, Any] = {"verify_ssl": False, "ssl_ca_cert": None, "cert_file": None, "key_file": None}
        known |= {
            "host": f"http://127.0.0.1:{self._server.server_port}",
            "tls_server_name": None,
            "auth_settings": dict,
        }
        return KubernetesApi(SimpleNamespace(**known), timeout_s)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    # -- objects -----------------------------------------------------------------------------------------------------

    def found(self, path: str) -> dict[str, Any]:
        with self._lock:
            if path not in self._objects:
                raise Conflict(404, f"{path} not found")
            return self._objects[path]

    def items(self, path: str, asked: dict[str, str]) -> list[dict[str, Any]]:
        with self._lock:
            return [one for where, one in self._objects.items() if _is_in(where, path) and _is_meant(one, asked)]

    def create(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        with self._lock:
            if refusal := self.refused.pop(path, None):
                raise refusal
            if path.endswith("/binding"):
                return self._bind(path.removesuffix("/binding"), body)
            where = f"{path}/{body['metadata']['name']}"
            if where in self._objects:
                raise Conflict(409, f"{where} already exists")
            space = path.partition("/namespaces/")[2].partition("/")[0] if "/namespaces/" in path else None
            own = {"uid": f"uid-{self._changes}", "creationTimestamp": "2026-01-01T00:00:00Z"}
            own |= {"namespace": space} if space else {}
            made = {**body, "metadata": {**body["metadata"], **own}}
            made.setdefault("status", {"phase": "Pending"} if path.endswith("/pods") else {})
            return self._store(where, made, "ADDED")

    def _bind(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        pod = self.found(path)
        if pod["spec"].get("nodeName"):
            raise Conflict(409, "already bound")
        for wanted in pod["spec"].get("resourceClaims") or ():
            claim = self.found(self._claim_path(pod, wanted["resourceClaimName"]))
            users = [one["uid"] for one in claim["status"].get("reservedFor") or ()]
            if pod["metadata"]["uid"] not in users:  # a kubelet would never start it
                raise Conflict(422, f"claim {wanted['resourceClaimName']} is not reserved for the pod")
        return self._store(path, _merged(pod, {"spec": {"nodeName": body["target"]["name"]}}), "MODIFIED")

    def _claim_path(self, pod: dict[str, Any], name: str) -> str:
        return f"/apis/resource.k8s.io/v1/namespaces/{pod['metadata']['namespace']}/resourceclaims/{name}"

    def patch(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        with self._lock:
            where = path.removesuffix("/status")
            before = self.found(where)
            after = _merged(before, body)
            held = (before.get("status") or {}).get("allocation")
            if held and after["status"].get("allocation") != held:
                raise Conflict(422, "status.allocation: field is immutable")
            return self._kept(where, after)

    def delete(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        with self._lock:
            found, grace_s = self.found(path), body.get("gracePeriodSeconds") or 0
            gone = {"deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": grace_s}
            bound = bool(found["spec"].get("nodeName")) and grace_s > 0
            return self._kept(path, _merged(found, {"metadata": gone}), keep=bound)

    def _kept(self, where: str, found: dict[str, Any], keep: bool = False) -> dict[str, Any]:
        """An object that is to go goes when no finalizer, and no kubelet, keeps it."""
        leaving = found["metadata"].get("deletionTimestamp") and not found["metadata"].get("deletionGracePeriodSeconds")
        if leaving and not keep and not found["metadata"].get("finalizers"):
            self._objects.pop(where, None)
            return self._tell(where, found, "DELETED")
        return self._store(where, found, "MODIFIED")

    def _store(self, where: str, found: dict[str, Any], kind: str) -> dict[str, Any]:
        self._objects[where] = found
        return self._tell(where, found, kind)

    def _tell(self, where: str, found: dict[str, Any], kind: str) -> dict[str, Any]:
        self._changes += 1
        found["metadata"]["resourceVersion"] = str(self._changes)
        for path, asked, out in self._watches:
            if _is_in(where, path) and _is_meant(found, asked):
                out.put({"type": kind, "object": found})
        return found

    @contextmanager
    def watching(self, path: str, asked: dict[str, str]) -> Iterator[queue.Queue[dict[str, Any]]]:
        """What changes from the version on that was asked for: what changed meanwhile comes first."""
        out: queue.Queue[dict[str, Any]] = queue.Queue()
        entry = (path, asked, out)
        with self._lock:
            since = int(asked.get("resourceVersion") or 0)
            for one in self.items(path, asked):
                if int(one["metadata"]["resourceVersion"]) > since:
                    out.put({"type": "MODIFIED", "object": one})
            self._watches.append(entry)
        try:
            yield out
        finally:
            with self._lock:
                self._watches.remove(entry)

    def answer(self, method: str, path: str, asked: dict[str, str], body: dict[str, Any]) -> dict[str, Any]:
        if path == "/version":
            return {"gitVersion": self.version}
        if path == "/readyz":
            return {}
        if asked.get("dryRun"):
            return body
        if method == "GET" and path in self._objects:
            return self.found(path)
        if method == "GET":
            return {"items": self.items(path, asked), "metadata": {"resourceVersion": str(self._changes)}}
        calls = {"POST": self.create, "PATCH": self.patch, "DELETE": self.delete}
        return calls[method](path, body)


def _is_in(where: str, collection: str) -> bool:
    head, _, _ = where.rpartition("/")
    if head == collection:
        return True
    group, _, kind = collection.rpartition("/")
    return head.startswith(f"{group}/namespaces/") and head.endswith(f"/{kind}") and "/namespaces/" not in collection


def _is_meant(one: dict[str, Any], asked: dict[str, str]) -> bool:
    """Label selectors as the executor has them: equal, not equal, not there."""
    labels = one["metadata"].get("labels") or {}
    for term in filter(None, asked.get("labelSelector", "").split(",")):
        name, _, value = term.partition("=")
        if term.startswith("!"):
            if term[1:] in labels:
                return False
        elif name.endswith("!"):
            if labels.get(name[:-1]) == value:
                return False
        elif labels.get(name) != value:
            return False
    return True


def _merged(before: Any, change: Any) -> Any:
    """RFC 7396."""
    if not isinstance(change, dict):
        return change
    kept = dict(before) if isinstance(before, dict) else {}
    for key, value in change.items():
        if value is None:
            kept.pop(key, None)
        else:
            kept[key] = _merged(kept.get(key), value)
    return kept


def _handler(server: PlayedApiServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _answer(self) -> None:
            parts = urlsplit(self.path)
            asked = {name: values[0] for name, values in parse_qs(parts.query).items()}
            body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"{}")
            if asked.get("watch"):
                self._watch(parts.path, asked)
                return
            try:
                self._send(200, server.answer(self.command, parts.path, asked, body))
            except Conflict as conflict:
                self._send(conflict.status, {"message": str(conflict)})

        do_GET = do_POST = do_PATCH = do_DELETE = _answer  # noqa: N815 - names of the standard library

        def _watch(self, path: str, asked: dict[str, str]) -> None:
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            self.close_connection = True
            with server.watching(path, asked) as news:
                while True:
                    line = json.dumps(news.get(timeout=60.0)).encode() + b"\n"
                    self.wfile.write(f"{len(line):x}\r\n".encode() + line + b"\r\n")
                    self.wfile.flush()

        def _send(self, status: int, body: dict[str, Any]) -> None:
            data = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            """Quiet."""

        def handle(self) -> None:
            try:
                super().handle()
            except (OSError, queue.Empty):
                self.close_connection = True  # the client is gone

    return Handler
