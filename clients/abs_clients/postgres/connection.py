"""New connections with their session settings and their owner's name.

``application_name`` names register and generation, so that a new run can end older generations'
sessions. By the settings every statement waits for locks a bounded time, and every commit is
durable.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, LiteralString

import psycopg
from psycopg import Connection, sql
from psycopg.errors import ObjectNotInPrerequisiteState, UndefinedObject
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_random

from abs_clients import logins
from abs_clients.postgres.address import Server
from abs_clients.postgres.errors import cannot_connect, translate_errors
from abs_clients.postgres.watch import WatchedConnection, doing_of, look_after
from abs_core.errors import ContentionError
from abs_core.model import Finding

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

PINNED = {
    # A client that vanishes must not keep its locks for long: nothing here leaves a transaction idle
    # but for an instant, and the server asks a silent peer after half a minute.
    "idle_in_transaction_session_timeout": str(IDLE_IN_TRANSACTION_SECONDS * 1000),
    "tcp_keepalives_idle": "30",
    "tcp_keepalives_interval": "10",
    "tcp_keepalives_count": "3",
    # Commit and inspect rely on each statement's having a snapshot of its own.
    "default_transaction_isolation": "read committed",
    # What a text says when it comes in.
    "array_nulls": "on",
    "backslash_quote": "safe_encoding",
    "standard_conforming_strings": "on",
    "transform_null_equals": "off",
    "xmloption": "content",
    # What it says when it goes out: PostgreSQL writes values as text for dead letters and digests.
    "bytea_output": "hex",
    "extra_float_digits": "1",
    "xmlbinary": "base64",
    "IntervalStyle": "postgres",
    "DateStyle": "ISO",  # the order of day and month stays
    # All rows, not some of them.
    "gin_fuzzy_search_limit": "0",
}
"""Settings of a session that role, database and user may have chosen otherwise: all in this one place.

Those that only the table's own defaults and triggers read (TimeZone, search_path, the order of day and
month, default_text_search_config, ...) stay as they are: no value that is sent may depend on them.
"""

_SETTINGS = """
select set_config('lock_timeout', %(lock_ms)s, false),
       set_config('synchronous_commit',
                  case current_setting('synchronous_commit') when 'off' then 'on'
                       else current_setting('synchronous_commit') end, false),
       (select count(set_config(name, value, false))
          from unnest(%(names)s::text[], %(values)s::text[]) pinned(name, value)),
       pg_backend_pid()
"""


@dataclass(frozen=True, slots=True)
class Tag:
    """The owner of a connection: one generation of one register."""

    register: str
    generation: int

    def __str__(self) -> str:
        return f"abs:{self.register}:{self.generation}"

    @classmethod
    def parse(cls, text: str) -> Tag | None:
        """The tag that prints as exactly ``text``, or None."""
        match = _TAG.fullmatch(text)
        return None if match is None else cls(match[1], int(match[2]))


def connect(server: Server, tag: Tag | None = None) -> Connection[Any]:
    """A new connection in autocommit mode, with this module's session settings.

    Raises:
        RefusedError: wrong host name, credentials, database.
        UnavailableError: no server answers.
    """
    chosen = dict(server.address.parameters)
    tcp = {**_TCP, **{name: chosen[name] for name in _TCP if name in chosen}}
    silence = _whole(tcp["tcp_user_timeout"]) / 1000
    conninfo = partial(
        server.address.conninfo,
        **tcp,
        application_name=str(tag) if tag else _NO_TAG,
        connect_timeout=str(max(2, round(server.connecttimeout))),
        client_encoding="UTF8",
    )
    try:
        # No automatic server-side PREPARE: staging tables come and go under the same text.
        connection = WatchedConnection.connect(conninfo(), autocommit=True, prepare_threshold=None)
    except psycopg.Error as error:
        raise cannot_connect(error, server.address.label) from error
    connection.watch(silence)
    with or_close(connection), translate_errors("setting up the session"):
        row = connection.execute(
            _SETTINGS,
            {
                "lock_ms": str(round(server.locktimeout * 1000)),
                "names": list(PINNED),
                "values": list(PINNED.values()),
            },
        ).fetchone()
    assert row is not None
    ask = partial(doing_of, conninfo, row[-1], look_after(silence))
    connection.watch(silence, ask, server.standbytimeout)
    return connection


def _whole(text: str) -> int:
    """A number of libpq's; libpq itself refuses other text, or takes the default."""
    return int(text) if text.strip().isdecimal() else SILENCE_MS


@contextmanager
def or_close(connection: Connection[Any]) -> Iterator[None]:
    """Close the connection after an error: the server rolls back at once."""
    try:
        yield
    except BaseException:
        connection.close()
        raise


def end_prepared(
    connection: Connection[Any], statement: LiteralString, gid: str, *, seconds: float
) -> bool:
    """Run COMMIT PREPARED or ROLLBACK PREPARED on the gid; False: the gid is gone.

    The driver's other errors pass through.

    Args:
        seconds: how long another session may be ending it.

    Raises:
        ContentionError: another session took longer.
    """
    waiting = Retrying(
        retry=retry_if_exception_type(ObjectNotInPrerequisiteState),  # another session ends it
        wait=wait_random(0.02, 0.2),
        stop=stop_after_delay(seconds),
        reraise=True,
    )
    try:
        waiting(connection.execute, sql.SQL(statement).format(gid))
    except UndefinedObject:
        return False
    except ObjectNotInPrerequisiteState as error:
        raise ContentionError(
            f"Another session has been ending this prepared transaction for {seconds:g} s.",
            handle=gid,
            remedy="see pg_stat_activity for COMMIT PREPARED or ROLLBACK PREPARED.",
        ) from error
    return True


_ASKED = """
    select session_user, case when isfinite(rolvaliduntil) then extract(epoch from rolvaliduntil) end,
        (select client_dn from pg_stat_ssl where pid = pg_backend_pid())
    from pg_roles where rolname = session_user
"""


def told_login(server: Server) -> Finding:
    """Who logs in, how, and until when; raises as ``connect``."""
    where, parameters = f"PostgreSQL at {server.address.place}", dict(server.address.parameters)
    with connect(server) as session, translate_errors("asking who is logged in"):
        row = session.execute(_ASKED).fetchone()
    assert row is not None, "a session's role exists"
    role, until, certified = row
    # Only if the server has asked for it: libpq takes one from its default place, too.
    certificate = logins.certificate_in(parameters.get("sslcert")) if certified else None
    if certificate is not None:
        subject, expires = certificate
        return logins.told(where, f"{role} (certificate {subject})", "its certificate", expires)
    how = "" if server.address.source is None else f" (option {server.address.source.option})"
    ends = None if until is None else float(until)
    return logins.told(where, f"{role}{how}", "its password (VALID UNTIL)", ends)
