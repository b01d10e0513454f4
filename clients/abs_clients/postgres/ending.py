"""Ends prepared transactions."""

from __future__ import annotations

from typing import Any, LiteralString

from psycopg import Connection, sql
from psycopg.errors import ObjectNotInPrerequisiteState, UndefinedObject
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_random

from abs_core.errors import ContentionError


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
