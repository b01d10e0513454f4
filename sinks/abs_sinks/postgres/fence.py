"""Ends sessions of older generations, so that a zombie's locks do not block its successor.

Safety does not need it: that is the register's.
"""

from __future__ import annotations

from abs_clients.postgres.connection import Tag
from abs_clients.postgres.pool import leased
from abs_core.model import JobState
from abs_sinks.postgres.options import PostgresOptions

# Idle sessions hold nothing, and are left alone. Other roles' sessions cannot be ended, and show no
# state; two roles have separate registers.
_IN_FLIGHT = """
select pid, application_name from pg_stat_activity
 where datname = current_database() and pid <> pg_backend_pid()
   and application_name like 'abs:%' and xact_start is not null
"""

# Checked again before ending, since a pid can be reused; materialized, so that the check comes first.
_TERMINATE = """
with zombie as materialized (
    select pid from pg_stat_activity
     where pid = any(%s) and application_name like %s and xact_start is not null)
select count(*) filter (where pg_terminate_backend(pid, %s)) from zombie
"""

_WAIT_MS = 2000


def terminate_older(options: PostgresOptions, state: JobState) -> int:
    """End the sessions in a transaction of lower generations; returns their number.

    Raises:
        TargetError: the server did not answer, or refused.
    """
    with leased(options.server, doing="ending sessions of superseded runs") as connection:
        pids = [
            pid
            for pid, name in connection.execute(_IN_FLIGHT)
            if (tag := Tag.parse(name))
            and tag.register == state.register
            and tag.generation < state.generation
        ]
        if not pids:
            return 0
        row = connection.execute(_TERMINATE, (pids, f"abs:{state.register}:%", _WAIT_MS)).fetchone()
        return 0 if row is None else int(row[0])
