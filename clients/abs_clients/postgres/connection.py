"""Connections, kept for reuse: executor workers and the commit process live through many epochs.

A connection is leased to one user at a time. It carries in ``application_name`` for whom it works,
so that a new run can end what older generations still have in flight. Session settings made here
make every statement wait for locks a bounded time only, and every commit durable.
"""

from __future__ import annotations

import atexit
import os
import re
import select
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import psycopg
from psycopg import Connection
from psycopg.pq import TransactionStatus

from abs_clients.postgres.address import Address
from abs_clients.postgres.errors import cannot_connect, mapped
from abs_clients.postgres.server import Server
from abs_clients.postgres.watch import Silence, WatchedConnection, doing_of

KEPT_MAX = 4
"""How many idle connections a process keeps for one server, database and role."""

PING_AFTER_SECONDS = 30.0
"""A connection that was idle for longer is asked before it is used: a firewall may have cut it."""

IDLE_IN_TRANSACTION_SECONDS = 60
"""How long a client may leave a transaction without a statement before the server ends it."""

_TAG = re.compile(r"abs:([0-9a-f]{16}):(0|[1-9]\d{0,17})")
_NO_TAG = "abs"

SILENCE_MS = 35_000
"""A server that vanishes without a word is noticed within a minute: after so much silence, and what
it takes to ask. The parameter ``tcp_user_timeout`` of the url overrides it."""

# TCP's own part: bytes that the other side's kernel does not acknowledge, a peer that is not there.
_TCP = {
    "tcp_user_timeout": str(SILENCE_MS),
    "keepalives_idle": "15",
    "keepalives_interval": "10",
    "keepalives_count": "3",
}

_SETTINGS = """
select set_config('lock_timeout', %(lock_ms)s, false),
       set_config('synchronous_commit',
                  case current_setting('synchronous_commit') when 'off' then 'on'
                       else current_setting('synchronous_commit') end, false),
       set_config('idle_in_transaction_session_timeout', %(idle_ms)s, false),
       set_config('tcp_keepalives_idle', '30', false),
       set_config('tcp_keepalives_interval', '10', false),
       set_config('tcp_keepalives_count', '3', false),
       set_config('default_transaction_isolation', 'read committed', false),
       pg_backend_pid()
"""
# A client that vanishes must not keep its locks for long: nothing here leaves a transaction idle but
# for an instant, and the server asks a silent peer after half a minute.
# Isolation: commit and inspect rely on each statement's having a snapshot of its own.


@dataclass(frozen=True, slots=True)
class Tag:
    """For whom a connection works: one generation of one register."""

    register: str
    generation: int

    def __str__(self) -> str:
        return f"abs:{self.register}:{self.generation}"

    @classmethod
    def parse(cls, text: str) -> Tag | None:
        """The tag that prints as exactly ``text``, or None."""
        match = _TAG.fullmatch(text)
        return None if match is None else cls(match[1], int(match[2]))


@dataclass(slots=True)
class _Idle:
    connection: Connection[Any]
    tag: Tag | None
    since: float


_lock = threading.Lock()
_Key = tuple[Address, float, float, int]
_idle: dict[_Key, list[_Idle]] = {}


def connect(server: Server, tag: Tag | None = None) -> Connection[Any]:
    """A new connection in autocommit mode, with this module's session settings.

    Raises:
        RefusedError: wrong host name, credentials, database.
        UnavailableError: no server answers there.
    """
    chosen = dict(server.address.parameters)
    tcp = {**_TCP, **{name: chosen[name] for name in _TCP if name in chosen}}
    silence = Silence(_whole(tcp["tcp_user_timeout"]) / 1000)
    conninfo = server.address.conninfo(
        **tcp,
        application_name=str(tag) if tag else _NO_TAG,
        connect_timeout=str(max(2, round(server.connecttimeout))),
        client_encoding="UTF8",
    )
    try:
        # No automatic server-side PREPARE: staging tables come and go under the same text.
        connection = WatchedConnection.connect(conninfo, autocommit=True, prepare_threshold=None)
    except psycopg.Error as error:
        raise cannot_connect(error, server.address.label) from error
    connection.watch(silence)
    with or_close(connection), mapped("setting up the session"):
        row = connection.execute(
            _SETTINGS,
            {
                "lock_ms": str(round(server.locktimeout * 1000)),
                "idle_ms": str(IDLE_IN_TRANSACTION_SECONDS * 1000),
            },
        ).fetchone()
    assert row is not None
    connection.watch(silence, partial(doing_of, conninfo, row[-1], silence.look_after))
    return connection


def _whole(text: str) -> int:
    """A number of libpq's; what is none libpq itself has refused, or takes for its default."""
    return int(text) if text.strip().isdecimal() else SILENCE_MS


@contextmanager
def leased(server: Server, tag: Tag | None = None) -> Iterator[Connection[Any]]:
    """A live connection for this user alone; kept for the next one unless something went wrong."""
    connection = take(server, tag)
    try:
        yield connection
    except BaseException:
        # Whatever state it is in, nobody else shall inherit it.
        connection.close()
        raise
    give_back(server, connection)


def take(server: Server, tag: Tag | None = None) -> Connection[Any]:
    """A live connection; to be given back, or closed.

    Args:
        tag: for whom; where None, any name that the session bears already will do.
    """
    while (idle := _pop(server, tag)) is not None:
        if not _is_alive(idle):
            idle.connection.close()
            continue
        if tag is not None and idle.tag != tag:
            rename = "select set_config('application_name', %s, false)"
            with or_close(idle.connection), mapped("naming the session"):
                idle.connection.execute(rename, (str(tag),))
        return idle.connection
    return connect(server, tag)


def give_back(server: Server, connection: Connection[Any]) -> None:
    """Keep a connection for the next user, if it is in a clean state and there is room."""
    if connection.closed or connection.info.transaction_status != TransactionStatus.IDLE:
        connection.close()
        return
    with _lock:
        kept = _idle.setdefault(_key(server), [])
        if len(kept) < KEPT_MAX:
            # The server tells of every change of the name, so libpq knows it.
            name = connection.info.parameter_status("application_name") or ""
            kept.append(_Idle(connection, Tag.parse(name), time.monotonic()))
            return
    connection.close()


@contextmanager
def or_close(connection: Connection[Any]) -> Iterator[None]:
    """Close the connection where something goes wrong: the server rolls back and lets go at once."""
    try:
        yield
    except BaseException:
        connection.close()
        raise


def close_idle(server: Server | None = None) -> None:
    """Close this process's idle connections for these server; all of them where None."""
    with _lock:
        # A forked process has its parent's in the list; they are not its to close.
        own = [key for key in _idle if key[-1] == os.getpid()]
        keys = own if server is None else [_key(server)]
        idle = [one for key in keys for one in _idle.pop(key, [])]
    for one in idle:
        one.connection.close()


atexit.register(close_idle)


def _key(server: Server) -> _Key:
    # With the process id: after a fork the parent's connections are not the child's to use.
    return server.address, server.locktimeout, server.connecttimeout, os.getpid()


def _pop(server: Server, tag: Tag | None) -> _Idle | None:
    with _lock:
        kept = _idle.get(_key(server))
        if not kept:
            return None
        place = next((n for n, one in enumerate(kept) if one.tag == tag), -1)
        return kept.pop(place)


def _is_alive(idle: _Idle) -> bool:
    """No round trip where it was used lately: a server that went away has closed the socket."""
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
