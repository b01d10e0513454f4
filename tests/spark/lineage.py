"""A collector of OpenLineage that keeps what it is sent, and says what is wrong with it.

If the variable ``ABS_OPENLINEAGE_SPEC`` names the folder ``spec`` of OpenLineage's own repository, and
``jsonschema`` is installed, each event is also validated by OpenLineage's schemas.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Iterator
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import import_module
from pathlib import Path
from typing import Any, Self
from uuid import UUID

from tests.kit.http import serving

SPEC = os.environ.get("ABS_OPENLINEAGE_SPEC")


class Collector:
    """Use as a context manager."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        events = self.events

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                content = self.rfile.read(int(self.headers["Content-Length"]))
                events.append({"path": self.path, **json.loads(content)})
                self.send_response(201)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._serving = serving(self._server)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        self._serving.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._serving.__exit__(None, None, None)

    def outputs(self) -> list[dict[str, int | None]]:
        """Of each run that has ended, in order: the rows of each dataset."""
        return [
            {
                f"{one['namespace']}/{one['name']}": one["outputFacets"]
                .get("outputStatistics", {})
                .get("rowCount")
                for one in event["outputs"]
            }
            for event in self.events
            if event["eventType"] == "COMPLETE"
        ]

    def wrong(self) -> list[str]:
        """What OpenLineage's rules for events forbid."""
        found = []
        states = defaultdict(list)
        for event in self.events:
            run = str(UUID(event["run"]["runId"]))
            states[run].append(event["eventType"])
            if datetime.fromisoformat(event["eventTime"]).tzinfo is None:
                found.append(f"{run}: a time without a zone")
            if event["path"] != "/api/v1/lineage" or "/OpenLineage.json#" not in event["schemaURL"]:
                found.append(f"{run}: {event['path']} {event['schemaURL']}")
            if not (event["job"]["namespace"] and event["job"]["name"] and event["producer"]):
                found.append(f"{run}: nobody's")
        if SPEC is not None:
            found += off_schema(self.events, Path(SPEC))
        return found + [f"{run}: {s}" for run, s in states.items() if s != ["START", "COMPLETE"]]


def off_schema(events: list[dict[str, Any]], spec: Path) -> list[str]:
    """What OpenLineage's own JSON schemas say against these events, and against their facets."""
    jsonschema, referencing = import_module("jsonschema"), import_module("referencing")
    files = [spec / "OpenLineage.json", *sorted((spec / "facets").glob("*.json"))]
    schemas = [json.loads(file.read_text()) for file in files]
    known = [(one["$id"], referencing.Resource.from_contents(one)) for one in schemas]
    registry = referencing.Registry().with_resources(known)
    found = []
    for event in events:
        sent = {name: value for name, value in event.items() if name != "path"}
        for where, what, schema in [("event", sent, event["schemaURL"]), *_facets(sent)]:
            rule = jsonschema.Draft202012Validator(
                {"$ref": schema}, registry=registry, format_checker=jsonschema.FormatChecker()
            )
            found += [f"{where}: {error.message}" for error in rule.iter_errors(what)]
    return found


def _facets(event: dict[str, Any]) -> Iterator[tuple[str, object, str]]:
    """Where each facet is, the facet, and its schema."""
    for name in ("run", "job", "inputs", "outputs"):
        objects = event[name] if isinstance(event[name], list) else [event[name]]
        for each in objects:
            for kind in ("facets", "inputFacets", "outputFacets"):
                for facet, what in each.get(kind, {}).items():
                    yield f"{name}.{kind}.{facet}", what, what["_schemaURL"]
