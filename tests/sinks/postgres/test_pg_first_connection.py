"""A task that has sent nothing waits for a server that is away, and for nothing else; none runs."""

from __future__ import annotations

from typing import Any

import psycopg
import pyarrow as pa
import pytest

from abs_clients.postgres.errors import cannot_connect, to_abs_error
from abs_core.contracts import Task
from abs_core.errors import AbsError, ContentionError, UnavailableError
from abs_core.model import Committable
from abs_sinks.postgres import PostgresOptions
from abs_sinks.postgres.apply.target import SinkTable
from abs_sinks.postgres.copyin import CopyIn, CopyWriter

GIVEN = {"url": "postgresql://h/d", "dbtable": "t", "patience": "20s"}
ROWS = pa.record_batch({"id": [1]})


class Begun:
    """A COPY that takes rows."""

    connection: Any = object()

    def write(self, batch: pa.RecordBatch) -> None:
        self.rows = batch.num_rows


class Writer(CopyWriter):
    """Its first beginnings fail with these errors."""

    def __init__(self, *errors: AbsError) -> None:
        table = SinkTable(PostgresOptions.parse(GIVEN), ROWS.schema)
        super().__init__(table, Task("0" * 16, "job", 1, 0, 0, "ab"))
        self.errors = list(errors)
        self.begun = 0

    def _begin(self) -> CopyIn:
        self.begun += 1
        if self.errors:
            raise self.errors.pop(0)
        copy: Any = Begun()
        return copy  # type: ignore[no-any-return]

    def _end(self, connection: Any, made: Committable) -> None:
        raise NotImplementedError

    def _bury(self, connection: Any, target: Any, letters: Any) -> None:
        raise NotImplementedError


def away() -> AbsError:
    return cannot_connect(psycopg.OperationalError("the database system is shutting down"), "h")


def full() -> AbsError:
    error = to_abs_error(cause := psycopg.errors.OutOfMemory("out of shared memory"), "beginning")
    error.__cause__ = cause
    return error


def test_a_server_that_is_away_is_waited_for_before_the_first_row() -> None:
    writer = Writer(away(), away())
    writer.write(ROWS)
    assert writer.begun == 3


@pytest.mark.parametrize(
    ("error", "kind"),
    [(ContentionError("Locked."), ContentionError), (full(), UnavailableError)],
    ids=["lock", "memory"],
)
def test_what_the_server_itself_says_is_not_waited_for(
    error: AbsError, kind: type[AbsError]
) -> None:
    writer = Writer(error)
    with pytest.raises(kind) as raised:
        writer.write(ROWS)
    assert raised.value is error
    assert writer.begun == 1


def test_a_connection_that_has_taken_rows_is_not_replaced() -> None:
    writer = Writer()
    writer.write(ROWS)
    writer.errors, writer._copy = [away()], None
    with pytest.raises(UnavailableError):
        writer.write(ROWS)
    assert writer.begun == 2
