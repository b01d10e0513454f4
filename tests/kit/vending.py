"""A REST catalog that vends credentials for its tables, and takes them back.

A stand-in: pyiceberg's catalog in SQLite behind the calls of the REST specification that its client
makes. The server of the buckets is a real one; a proxy before it refuses keys that are taken back.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock
from typing import Any

from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.catalog.rest import CreateTableRequest
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError
from pyiceberg.table import CommitTableRequest, Table

from tests.kit.http import serving
from tests.sinks.s3.proxy import Request

TAKEN_BACK = b"<Error><Code>InvalidAccessKeyId</Code><Message>taken back</Message></Error>"


@dataclass
class Vending:
    """Keys, each vended once.

    Args:
        keys: with their secrets: the store knows them all.
        life: seconds that are told.
    """

    keys: Mapping[str, str]
    life: float = 30.0
    vended: list[str] = field(default_factory=list)
    alive: set[str] = field(default_factory=set)
    lock: Lock = field(default_factory=Lock)

    def vend(self) -> dict[str, str]:
        with self.lock:
            key = list(self.keys)[len(self.vended)]
            self.vended.append(key)
            self.alive.add(key)
        return {
            "s3.access-key-id": key,
            "s3.secret-access-key": self.keys[key],
            "s3.session-token-expires-at-ms": str(int((time.time() + self.life) * 1000)),
        }

    def take_back(self) -> None:
        """All that were vended."""
        with self.lock:
            self.alive.clear()

    def refuses(self, request: Request) -> bool:
        """Whether a request to the store is made by a vended key that is taken back."""
        told = {name.lower(): text for name, text in request.headers.items()}
        found = re.search(r"Credential=([^/]+)/", told.get("authorization", ""))
        with self.lock:
            return found is None or (found[1] in self.keys and found[1] not in self.alive)


@contextmanager
def vending_catalog(
    inner: Mapping[str, str], vending: Vending, told: Mapping[str, str]
) -> Iterator[str]:
    """The URL of a catalog.

    Args:
        inner: properties of the catalog behind it.
        told: what it tells of the store beside credentials.
    """
    lock = Lock()
    catalog = load_catalog("inner", **inner)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            with lock:
                try:
                    status, answer = answered(catalog, self.command, self.path, body)
                except NoSuchTableError:
                    status, answer = 404, _error("NoSuchTableException", 404)
                except CommitFailedException:
                    status, answer = 409, _error("CommitFailedException", 409)
            asked = self.headers.get("X-Iceberg-Access-Delegation")
            if isinstance(answer, Table):
                answer = {
                    "metadata-location": answer.metadata_location,
                    "metadata": json.loads(answer.metadata.model_dump_json()),
                    "config": {**told, **vending.vend()} if asked == "vended-credentials" else {},
                }
            content = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content)

        do_GET = do_POST = do_HEAD = do  # noqa: N815

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    with serving(server):
        yield f"http://127.0.0.1:{server.server_port}"


def _error(kind: str, code: int) -> dict[str, Any]:
    return {"error": {"message": kind, "type": kind, "code": code}}


def answered(catalog: Catalog, method: str, path: str, body: bytes) -> tuple[int, Any]:
    """The status and the answer to a call; a table stands for what is told of it."""
    parts = path.split("?")[0].strip("/").split("/")[1:]
    match method, parts:
        case "GET", ["config"]:
            return 200, {"defaults": {}, "overrides": {}}
        case "POST", ["namespaces"]:
            name = tuple(json.loads(body)["namespace"])
            catalog.create_namespace(name)
            return 200, {"namespace": name, "properties": {}}
        case "GET" | "HEAD", ["namespaces", name]:
            return 200, {"namespace": [name], "properties": {}}
        case "POST", ["namespaces", name, "tables"]:
            asked = CreateTableRequest.model_validate_json(body)
            identifier = (name, asked.name)
            if asked.stage_create:
                raise AssertionError("staged tables are not made here")
            return 200, catalog.create_table(
                identifier, asked.table_schema, properties=asked.properties
            )
        case "GET" | "HEAD", ["namespaces", name, "tables", table]:
            return 200, catalog.load_table((name, table))
        case "POST", ["namespaces", name, "tables", table]:
            commit = CommitTableRequest.model_validate_json(body)
            found = catalog.load_table((name, table))
            made = catalog.commit_table(found, commit.requirements, commit.updates)
            return 200, {
                "metadata-location": made.metadata_location,
                "metadata": json.loads(made.metadata.model_dump_json()),
            }
    raise AssertionError(f"{method} {path} is not answered here")
