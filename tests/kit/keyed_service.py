"""A small HTTP service that adds to balances, and honours ``Idempotency-Key``."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread


class KeyedService(ThreadingHTTPServer):
    """The service; ``balances`` and ``keys`` are its state."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.balances: Counter[int] = Counter()
        self.keys: list[str] = []
        self.refuses = False
        self.lock = Lock()

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: KeyedService

    def do_POST(self) -> None:
        rows = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        key = self.headers["Idempotency-Key"]
        with self.server.lock:
            is_new = key not in self.server.keys and not self.server.refuses
            if is_new:
                self.server.keys.append(key)
                for row in rows:
                    self.server.balances[row["account"]] += row["amount"]
        self.send_response(503 if self.server.refuses else 201 if is_new else 200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's name
        pass


@contextmanager
def keyed_service() -> Iterator[KeyedService]:
    with KeyedService() as service:
        thread = Thread(target=service.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield service
        finally:
            service.shutdown()
            thread.join()
