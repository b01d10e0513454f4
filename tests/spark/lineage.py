"""A collector of OpenLineage that keeps what it is sent, and says what is wrong with it."""

from __future__ import annotations

import json
import threading
from collections import defaultdict
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from uuid import UUID


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
        self._thread = threading.Thread(target=self._server.serve_forever)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

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
        return found + [f"{run}: {s}" for run, s in states.items() if s != ["START", "COMPLETE"]]
