"""Ending what older generations of a register still have in flight on the server.

Never needed for safety, which rests on the register: it keeps a stopped zombie's locks from
blocking its successor.
"""

from __future__ import annotations

from typing import Any

from psycopg import Connection

from abs_clients.postgres.connection import Tag
from abs_clients.postgres.errors import translate_errors
from abs_clients.postgres.pool import leased
from abs_core.model import JobState
from abs_sinks.postgres.options import PostgresOptions

# Idle sessions are left alone: they hold nothing. Other roles' sessions cannot be ended, and show
# no state; the registers of two roles do not mix.
_IN_FLIGHT = """
select pid, application_name from pg_stat_activity
 where datname = current_database() and pid <> pg_backend_pid()
   and application_name like 'abs:%' and xact_start is not null
"""

# Looked at once more right before, for a pid can be another session's by now; materialized, or the
# server would end them before it looks.
_TERMINATE = """
with zombie as materialized (
    select pid from pg_stat_activity
     where pid = any(%s) and application_name like %s and xact_start is not null)
select count(*) filter (where pg_terminate_backend(pid, %s)) from zombie
"""

_WAIT_MS = 2000


def terminate_older(options: PostgresOptions, state: JobState) -> int:
    """End the transactions of generations of ``state.register`` that are lower than the state's.

    Returns:
        how many sessions were ended.

    Raises:
        TargetError: the server did not answer, or refused.
    """
    with (
        leased(options.server) as connection,
        translate_errors("ending sessions of superseded runs"),
    ):
        pids = _zombies(connection, state)
        if not pids:
            return 0
        row = connection.execute(_TERMINATE, (pids, f"abs:{state.register}:%", _WAIT_MS)).fetchone()
        return 0 if row is None else int(row[0])


def _zombies(connection: Connection[Any], state: JobState) -> list[int]:
    found = []
    for pid, name in connection.execute(_IN_FLIGHT):
        tag = Tag.parse(name)
        if tag and tag.register == state.register and tag.generation < state.generation:
            found.append(pid)
    return found
