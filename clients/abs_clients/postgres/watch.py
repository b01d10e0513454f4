"""A connection that detects a vanished server, whatever the cause.

TCP detects a vanished peer (``tcp_user_timeout``, keepalives), but not a proxy or firewall that
swallows all bytes, nor a server that stands still behind a live kernel: then a statement without an
answer looks like a long one. So after some silence this asks the server, over a second connection,
whether the session is working or waiting for us.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Generator
from contextlib import suppress
from enum import Enum
from typing import Any, TypeVar

import psycopg
from psycopg import Connection

from abs_clients.postgres.errors import STANDBY
from abs_core.errors import AbsError

T = TypeVar("T")

_DOING = """
select wait_event_type = 'Client', wait_event from pg_stat_activity where pid = %s
"""


class Doing(Enum):
    """The session's activity, as a second connection finds it."""

    WORKING = "it works"
    STANDBY = f"its commit waits for a synchronous standby (wait event {STANDBY})"
    NOT_FOR_US = "it waits for its client, or has gone"
    NOT_KNOWN = "nobody answers"


class WatchedConnection(Connection[Any]):
    """A connection whose every wait ends when the server is found gone.

    ``watch`` is called once it is made; until then it waits as psycopg does.
    """

    _silence = 0.0
    _ask: Callable[[], Doing] | None = None
    _standby = 0.0

    def watch(
        self, silence: float, ask: Callable[[], Doing] | None = None, standby: float = 0.0
    ) -> None:
        """Wait for the server no longer than this from now on.

        ``silence`` is the seconds after which a server that cannot be asked counts as gone; 0: never.
        ``ask`` returns the session's activity in bounded time. Without it every statement must be
        answered within ``silence``. ``standby`` is the seconds that a commit may wait for a
        synchronous standby, which may be away for ever.
        """
        self._silence, self._ask, self._standby = silence, ask, standby

    def wait(self, gen: Generator[Any, Any, T], *args: Any, **kwargs: Any) -> T:
        """See ``Connection``; ends it and raises OperationalError if the server is gone."""
        if not self._silence:
            return super().wait(gen, *args, **kwargs)
        return super().wait(self._watched(gen), *args, **kwargs)

    def _watched(self, gen: Generator[Any, Any, T]) -> Generator[Any, Any, T]:
        """The same generator; its driver sends a false value if nothing has arrived."""
        try:
            wanted = next(gen)
            heard = asked = time.monotonic()
            look_at, idle_seen = heard + look_after(self._silence), 0
            while True:
                ready = yield wanted
                now = time.monotonic()
                if ready:
                    heard = asked = now
                    idle_seen = 0
                    look_at = now + look_after(self._silence)
                elif now >= look_at:
                    doing = Doing.NOT_KNOWN if self._ask is None else self._ask()
                    overdue = doing is Doing.STANDBY and now - asked >= self._standby
                    if doing is Doing.WORKING or (doing is Doing.STANDBY and not overdue):
                        heard, idle_seen = time.monotonic(), 0
                    elif doing is Doing.NOT_FOR_US:
                        # Twice: the first time its answer may have been on the way.
                        idle_seen += 1
                    silent = time.monotonic() - (asked if overdue else heard)
                    if overdue or idle_seen == 2 or silent >= self._silence:
                        self._end()
                        raise psycopg.OperationalError(
                            f"no byte has come or gone for {silent:.0f} s, and {doing.value}"
                        )
                    look_at = time.monotonic() + look_after(self._silence)
                wanted = gen.send(ready)
        except StopIteration as done:
            result: T = done.value
            return result

    def _end(self) -> None:
        """End the socket: all later use of this connection fails at once."""
        with socket.socket(fileno=os.dup(self.fileno())) as own, suppress(OSError):
            own.shutdown(socket.SHUT_RDWR)  # TCP may have ended it by itself


def look_after(silence: float) -> float:
    """Seconds of silence before each query of the server."""
    return silence / 4


def doing_of(conninfo: Callable[[], str], pid: int, seconds: float) -> Doing:
    """The activity of the session with this process id, by a connection of its own.

    Args:
        conninfo: libpq's keyword string, with a password that is good now.
        pid: the server's own (a pooler invents another).
        seconds: limit for connecting, and again for the query.
    """
    try:
        with WatchedConnection.connect(
            conninfo(), autocommit=True, connect_timeout=max(2, round(seconds))
        ) as other:
            other.watch(seconds)
            row = other.execute(_DOING, (pid,)).fetchone()
    except psycopg.Error as error:
        # A server that refuses is there; whatever the session does, it may go on.
        return Doing.WORKING if error.sqlstate or "FATAL" in str(error) else Doing.NOT_KNOWN
    except AbsError:  # no password for the second connection
        return Doing.NOT_KNOWN
    if row is not None and row[1] == STANDBY:
        return Doing.STANDBY
    return Doing.NOT_FOR_US if row is None or row[0] else Doing.WORKING
