"""The PostgreSQL sink: a ``Sink`` for one table."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import pyarrow as pa

from abs_core.contracts import Task, Writer
from abs_core.errors import AbsError
from abs_core.model import Finding, Guarantee, JobState
from abs_sinks.postgres.committer import PostgresCommitter
from abs_sinks.postgres.connection import close_idle
from abs_sinks.postgres.fence import terminate_older
from abs_sinks.postgres.options import PostgresOptions
from abs_sinks.postgres.register import PostgresRegister
from abs_sinks.postgres.target import resolve
from abs_sinks.postgres.writer_2pc import PreparingWriter

log = logging.getLogger(__name__)


class PostgresSink:
    """Writes batches of one schema into one table, exactly once.

    Cheap to build and to pickle: it connects when it is first used, over connections that the
    process keeps.

    Args:
        options: where and how.
        schema: of every batch.
    """

    def __init__(self, options: PostgresOptions, schema: pa.Schema) -> None:
        self._options = options
        self._schema = schema

    @property
    def target(self) -> str:
        """``postgres:<system identifier>/<database>/<schema>.<table>``.

        Raises:
            SchemaError: the table is missing, or the input does not fit it.
            TargetError: the server refused or did not answer.
        """
        return resolve(self._options, self._schema).identity

    def writer(self, task: Task) -> Writer:
        return PreparingWriter(self._options, self._schema, task)

    def committer(self) -> PostgresCommitter:
        return PostgresCommitter(self._options)

    def register(self) -> PostgresRegister:
        return PostgresRegister(self._options)

    def preflight(self, job: str, tasks: int | None = None) -> Sequence[Finding]:
        return ()

    def guarantee(self) -> Guarantee:
        return Guarantee(
            protocol="2pc",
            write="append",
            visibility="per task: the rows of an epoch appear task by task, within milliseconds",
            reader="nothing: readers see committed rows only",
        )

    def fence(self, state: JobState) -> None:
        try:
            terminate_older(self._options, state)
        except AbsError as error:
            log.warning(
                "sessions of superseded runs of job %s were not ended: %s", state.job, error
            )

    def close(self) -> None:
        close_idle()
