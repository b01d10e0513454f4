"""A stand-in for a schema registry: subjects, versions and ids, by Confluent's API.

For tests in their own process, and for people by ``abs up registry``, which runs this module (see
:mod:`abs_services.native.registry`). Its answers are those that Apicurio gave; ``tests/clients/avro``
puts both to the same tests, so that this one cannot drift from a real one. It checks no compatibility.
"""

from __future__ import annotations

import base64
import json
import ssl
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import unquote, urlsplit

from abs_core.durable import replace_durably

Answer = tuple[int, Any]


class StandIn:
    """Serves until the block ends; its behaviour may be changed meanwhile.

    Args:
        login: ``user:password``, or a token, that requests must have.
        tls: of its side; None: plain HTTP.
        port: of 127.0.0.1; 0: a free one.
        kept: a file that holds the schemas over restarts: records name them by id. None: in memory.
    """

    def __init__(
        self,
        login: str | None = None,
        tls: ssl.SSLContext | None = None,
        *,
        port: int = 0,
        kept: Path | None = None,
    ) -> None:
        self.login = login
        self._tls = tls
        self._port = port
        self._kept = kept
        self.status: int | None = None
        """What every request is answered with, if set."""
        self.asked: list[str] = []
        self._texts: list[dict[str, Any]] = []
        self._subjects: dict[str, list[int]] = {}
        if kept is not None and kept.exists():
            content = json.loads(kept.read_text("utf-8"))
            self._texts, self._subjects = content["schemas"], content["subjects"]
        self._server: ThreadingHTTPServer | None = None
        self._lock = threading.Lock()

    @property
    def url(self) -> str:
        assert self._server is not None
        return f"http{'s' * (self._tls is not None)}://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        self._server = ThreadingHTTPServer(("127.0.0.1", self._port), self._handler())
        if self._tls is not None:
            # The handshake belongs to the connection's own thread.
            self._server.socket = self._tls.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
        # Its argument: how long the end waits for the server's next look, in seconds.
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        assert self._server is not None
        self._server.shutdown()
        self._server.server_close()

    def delete(self, subject: str) -> None:
        """Delete a subject with its schemas for good; their ids are not given again."""
        for number in self._subjects.pop(subject):
            self._texts[number - 1] = {}

    def add(self, subject: str, schema: Any, **more: Any) -> int:
        """Register a schema, as JSON has it; its id."""
        text = schema if isinstance(schema, str) and "{" in schema else json.dumps(schema)
        return int(self._add(subject, {"schema": text, **more})[1]["id"])

    def _handler(served) -> type[BaseHTTPRequestHandler]:  # noqa: N805 - the outer object
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: Any) -> None: ...

            def do_GET(self) -> None:
                self._reply(None)

            def do_POST(self) -> None:
                length = int(self.headers.get("content-length", 0))
                body = self.rfile.read(length)
                is_json = "json" in self.headers.get("content-type", "")
                self._reply(json.loads(body) if is_json else None)

            def _reply(self, body: Any) -> None:
                login = self.headers.get("authorization", "")
                status, document = served.answer(self.path, body, login)
                data = json.dumps(document).encode()
                self.send_response(status)
                self.send_header("content-type", "application/vnd.schemaregistry.v1+json")
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

        return Handler

    def answer(self, path: str, body: Any, login: str) -> Answer:
        """Status and body for a request."""
        if self.status is not None:
            return self.status, {"error_code": self.status * 100, "message": "as the test wants"}
        if self.login is not None:
            basic = base64.b64encode(self.login.encode()).decode()
            if login not in (f"Basic {basic}", f"Bearer {self.login}"):
                return 401, {"error_code": 401, "message": "Unauthorized"}
        parts = [unquote(part) for part in urlsplit(path).path.strip("/").split("/")]
        self.asked.append("/".join(parts))
        with self._lock:
            match parts:
                case ["subjects"]:
                    return 200, sorted(self._subjects)
                case ["schemas", "ids", number]:
                    return self._schema(int(number))
                case ["subjects", subject, "versions"] if body is not None:
                    return self._add(subject, body)
                case ["subjects", subject, "versions", version]:
                    return self._version(subject, version)
                case ["subjects", subject] if body is not None:
                    return self._lookup(subject, body)
        return 404, {"error_code": 404, "message": f"no such path: {path}"}

    def _schema(self, number: int) -> Answer:
        if not 0 < number <= len(self._texts) or not self._texts[number - 1]:
            return 404, {"error_code": 40403, "message": f"No artifact with ID '{number}'"}
        return 200, self._texts[number - 1]

    def _add(self, subject: str, body: Any) -> Answer:
        if body not in self._texts:
            self._texts.append(body)
        number = self._texts.index(body) + 1
        versions = self._subjects.setdefault(subject, [])
        if number not in versions:
            versions.append(number)
            self._keep()
        return 200, {"id": number}

    def _keep(self) -> None:
        """Write what it holds to its file, if it has one: before an id is told."""
        if self._kept is not None:
            content = {"schemas": self._texts, "subjects": self._subjects}
            replace_durably(self._kept, json.dumps(content).encode())

    def _version(self, subject: str, version: str) -> Answer:
        versions = self._subjects.get(subject, [])
        at = len(versions) if version == "latest" else int(version)
        if not 0 < at <= len(versions):
            return 404, {"error_code": 40401, "message": f"No artifact with ID '{subject}'"}
        number = versions[at - 1]
        named = {"subject": subject, "version": at, "id": number}
        return 200, {**named, **self._texts[number - 1]}

    def _lookup(self, subject: str, body: Any) -> Answer:
        for at, number in enumerate(self._subjects.get(subject, []), 1):
            if json.loads(self._texts[number - 1]["schema"]) == json.loads(body["schema"]):
                return 200, {"subject": subject, "version": at, "id": number, **body}
        return 404, {"error_code": 40403, "message": "Schema not found"}


if __name__ == "__main__":
    with StandIn(port=int(sys.argv[1]), kept=Path(sys.argv[2])):
        threading.Event().wait()
