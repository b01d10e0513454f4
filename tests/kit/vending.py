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
from pyiceberg.schema import Schema
from pyiceberg.table import CommitTableRequest, Table

from tests.kit.http import serving
from tests.sinks.s3.proxy import Request

TAKEN_BACK = b"<Error><Code>InvalidAccessKeyId</Code><Message>taken back</Message></Error>"


@dataclass
class Vending:
    """Keys, each vended once.

    Args:
        keys: with their secrets: the store knows them all.
        life: seconds that are told, after which the store does not take them any more.
        apart: whether they are told as ``storage-credentials``, and not in ``config``.
    """

    keys: Mapping[str, str]
    life: float = 30.0
    apart: bool = False
    vended: list[str] = field(default_factory=list)
    alive: dict[str, float] = field(default_factory=dict)
    lock: Lock = field(default_factory=Lock)

    def vend(self) -> dict[str, str]:
        with self.lock:
            key = list(self.keys)[len(self.vended)]
            self.vended.append(key)
            self.alive[key] = time.time() + self.life
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
            return found is None or (
                found[1] in self.keys and self.alive.get(found[1], 0.0) <= time.time()
            )


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

    def given() -> dict[str, Any]:
        keys = vending.vend()
        if not vending.apart:
            return {"config": {**told, **keys}}
        return {"config": told, "storage-credentials": [{"prefix": "s3://", "config": keys}]}

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
                    **(given() if asked == "vended-credentials" else {}),
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
            # The client leaves out what is None, and the model wants each.
            told = {"location": None, "partition-spec": None, "write-order": None}
            asked = CreateTableRequest.model_validate(told | json.loads(body))
            identifier = (name, asked.name)
            given: dict[str, Any] = {"schema": asked.table_schema, "properties": asked.properties}
            if asked.stage_create:
                return 200, _staged(catalog, identifier, **given)
            return 200, catalog.create_table(identifier, **given)
        case "GET" | "HEAD", ["namespaces", name, "tables", table]:
            return 200, catalog.load_table((name, table))
        case "POST", ["namespaces", name, "tables", table]:
            commit = CommitTableRequest.model_validate_json(body)
            found = (
                catalog.load_table((name, table))
                if catalog.table_exists((name, table))
                else _staged(catalog, (name, table), schema=Schema())
            )
            made = catalog.commit_table(found, commit.requirements, commit.updates)
            return 200, {
                "metadata-location": made.metadata_location,
                "metadata": json.loads(made.metadata.model_dump_json()),
            }
    raise AssertionError(f"{method} {path} is not answered here")


def _staged(catalog: Any, identifier: tuple[str, str], **given: Any) -> Table:
    """A table that is not there before its first commit."""
    made: Table = catalog._create_staged_table(identifier, **given)
    return made
