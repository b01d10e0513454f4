"""Idle connections and cached answers per server and process.

Executor workers and the commit process live through many epochs, and engines build a sink anew for
each task: so a sink owns neither. A connection is leased to one user at a time.
"""

from __future__ import annotations

import select
import threading
import time
from collections.abc import Hashable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import Connection
from psycopg.pq import TransactionStatus

from abs_clients.per_process import PerProcess
from abs_clients.postgres.address import Server
from abs_clients.postgres.connection import Tag, connect, or_close
from abs_clients.postgres.errors import translate_errors

MAX_KEPT = 4
"""How many idle connections a process keeps for one server, database and role."""

PING_AFTER_SECONDS = 30.0
"""A connection that was idle for longer is asked before it is used: a firewall may have cut it."""


@dataclass(slots=True)
class _Idle:
    connection: Connection[Any]
    tag: Tag | None
    since: float


class Pool:
    """The pool of one server in this process.

    ``answers`` caches what was learnt of the server, until ``close`` or until it is found changed.
    """

    def __init__(self, server: Server) -> None:
        self._server = server
        self._lock = threading.Lock()
        self._idle: list[_Idle] = []
        self.answers: dict[Hashable, Any] = {}

    def take(self, tag: Tag | None = None) -> Connection[Any]:
        """A live connection, to be given back or closed.

        With ``tag`` None, any name that the session already has will do.
        """
        while (idle := self._pop(tag)) is not None:
            if not _is_alive(idle):
                idle.connection.close()
                continue
            if tag is not None and idle.tag != tag:
                rename = "select set_config('application_name', %s, false)"
                with or_close(idle.connection), translate_errors("naming the session"):
                    idle.connection.execute(rename, (str(tag),))
            return idle.connection
        return connect(self._server, tag)

    def give_back(self, connection: Connection[Any]) -> None:
        """Keep a connection for the next user, if it is clean and there is room."""
        if connection.closed or connection.info.transaction_status != TransactionStatus.IDLE:
            connection.close()
            return
        with self._lock:
            if len(self._idle) < MAX_KEPT:
                # The server tells of every change of the name, so libpq knows it.
                name = connection.info.parameter_status("application_name") or ""
                self._idle.append(_Idle(connection, Tag.parse(name), time.monotonic()))
                return
        connection.close()

    def close(self) -> None:
        """Close the idle connections and clear the cache; users close their connections."""
        with self._lock:
            idle, self._idle = self._idle, []
            self.answers.clear()
        for one in idle:
            one.connection.close()

    def _pop(self, tag: Tag | None) -> _Idle | None:
        with self._lock:
            if not self._idle:
                return None
            place = next((n for n, one in enumerate(self._idle) if one.tag == tag), -1)
            return self._idle.pop(place)


_pools: PerProcess[Server, Pool] = PerProcess(Pool)


def pool(server: Server) -> Pool:
    """This process's pool for the server."""
    return _pools.of(server)


@contextmanager
def leased(
    server: Server, tag: Tag | None = None, *, doing: str | None = None
) -> Iterator[Connection[Any]]:
    """A live connection for this user alone; kept for the next one unless an error occurs.

    Args:
        doing: with it the driver's errors are mapped, see ``translate_errors``.
    """
    connection = pool(server).take(tag)
    # After an error nobody else shall inherit it, whatever state it is in.
    with or_close(connection), nullcontext() if doing is None else translate_errors(doing):
        yield connection
    pool(server).give_back(connection)


def close_idle(server: Server | None = None) -> None:
    """Close this process's idle connections and clear its cache: of the server, or of all servers."""
    _pools.close(server)


def _is_alive(idle: _Idle) -> bool:
    """No round trip after recent use: a server that went away has closed the socket."""
    connection = idle.connection
    if connection.closed:
        return False
    socket = select.poll()
    socket.register(connection.fileno(), select.POLLIN)
    if not socket.poll(0) and time.monotonic() - idle.since < PING_AFTER_SECONDS:
        return True
    try:
        connection.execute("select 1")
    except psycopg.Error:
        return False
    return True
