"""The format ``abs-postgres``; see ``abs_sinks.door``. Drivers are imported when they are used."""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from abs_core.births.rules import missing_target
from abs_core.contracts import Committer, Inventory
from abs_core.errors import OptionError
from abs_core.model import Finding, Guarantee, JobState
from abs_core.routing import ByProtocol
from abs_sinks.capabilities import LetterPlaces, Sharing
from abs_sinks.door import Around, SinkFormat, job_of

if TYPE_CHECKING:
    from abs_sinks.deadletters.place import KeptLetters
    from abs_sinks.postgres.options import PostgresOptions
    from abs_sinks.postgres.sink import PostgresGroup, PostgresSink

_KEYWORDS = re.compile(r"\bdbname\s*=|\A\s*(host|hostaddr|service)\s*=", re.IGNORECASE)
"""Finds a place that is written in libpq's keywords: it has one of these."""


class PostgresSharing(Sharing):
    """One transaction per task under ``2pc``, per epoch under ``wal``."""

    def together(
        self,
        sinks: Sequence[tuple[str, PostgresOptions]],
        tasks: int | None,
        *,
        apart: Sequence[str] = (),
    ) -> Sequence[Finding]:
        from abs_sinks.postgres.check.budget import findings_of_together

        return findings_of_together(sinks, tasks, apart=apart)

    def transactions(self, options: PostgresOptions) -> Hashable | None:
        from abs_sinks.postgres.options import transactions_of

        return transactions_of(options)

    def group(self, sinks: Mapping[int, tuple[PostgresOptions, pa.Schema]]) -> PostgresGroup:
        from abs_sinks.postgres.sink import PostgresGroup

        return PostgresGroup(sinks)

    def replacing(self, options: PostgresOptions) -> PostgresOptions | None:
        return options.replacing()


class LetterTables(LetterPlaces):
    """Tables of dead letters."""

    def at(
        self, url: str, deadletter: str, table: str | None, more: Mapping[str, str]
    ) -> KeptLetters:
        from abs_sinks.postgres.replay import PostgresLetters

        place = {"url": url, "deadletter": deadletter, "dbtable": table or "unknown"}
        place |= {"protocol": "wal"}
        return PostgresLetters(FORMAT.parse(place), {**more, **place})

    def of(self, options: PostgresOptions) -> KeptLetters:
        from abs_sinks.postgres.replay import PostgresLetters

        return PostgresLetters(replace(options, deadletter=options.letters or options.dbtable))


class PostgresFormat(SinkFormat):
    """Tables of PostgreSQL. A URL is libpq's, or JDBC's, or libpq's keywords."""

    name = "abs-postgres"
    schemes = ("postgresql", "postgres", "jdbc")
    marks = ("url", "dbtable")
    library = "abs_sinks.postgres.sink"
    buries = True
    audit = "abs_audit.postgres.relation:PostgresSide"

    def parse(self, options: Mapping[str, str]) -> PostgresOptions:
        from abs_sinks.postgres.options import PostgresOptions

        return PostgresOptions.parse(options)

    def at(self, url: str, table: str | None = None, stateschema: str = "abs") -> PostgresOptions:
        # Without a table none is looked at: handles are ended by name.
        named = table or f'"{stateschema}".register'
        return self.parse({"url": url, "dbtable": named, "stateschema": stateschema})

    def sink(
        self, options: PostgresOptions, schema: pa.Schema, *, alone: bool = True
    ) -> PostgresSink:
        from abs_sinks.postgres.sink import PostgresSink

        return PostgresSink(options, schema, co_commit=alone)

    def administer(self, options: PostgresOptions) -> tuple[Inventory, Committer]:
        from abs_sinks.postgres.register import PostgresRegister
        from abs_sinks.postgres.sink import committers_of

        return PostgresRegister(options), ByProtocol(committers_of(options))

    def guarantee(self, options: PostgresOptions) -> Guarantee:
        from abs_sinks.postgres.sink import guarantee

        return guarantee(options)

    def where(self, options: PostgresOptions) -> str:
        return f"{options.address.place}, table {options.dbtable}"

    def dataset(self, options: PostgresOptions, target: str) -> tuple[str, str]:
        """``postgres://host:port`` and ``database.schema.table``."""
        where = dict(options.address.parameters)
        host = where.get("host") or where.get("hostaddr") or "localhost"
        _, database, table = target.split("/", 2)
        return f"postgres://{host}:{where.get('port', '5432')}", f"{database}.{table}"

    def identity(self, options: PostgresOptions) -> str | None:
        from abs_sinks.postgres.apply.target import identity_at

        return identity_at(options)

    def preflight(self, options: PostgresOptions, around: Around) -> Sequence[Finding]:
        from abs_sinks.postgres.check.preflight import preflight

        job = job_of(options)
        return preflight(
            options,
            around.schema,
            job,
            around.tasks,
            composes=around.composes,
            if_missing=lambda: _check_new(options, job),
        )

    def logins(self, options: PostgresOptions) -> Sequence[Finding]:
        from abs_clients.postgres.connection import told_login

        return [told_login(options.server)]

    def sharing(self) -> PostgresSharing:
        return PostgresSharing()

    def letters(self) -> LetterTables:
        return LetterTables()

    def claims(self, url: str) -> bool:
        return super().claims(url) or ("://" not in url and _KEYWORDS.search(url) is not None)

    def shown(self, url: str) -> str:
        # A password may hold any character, also a URL's delimiters: only libpq's rules find its end.
        from abs_clients.postgres.address import Address

        try:
            return Address.parse(url).place
        except OptionError:
            return "a database"

    def forget(
        self, options: PostgresOptions, state: JobState, letters: bool | None = None
    ) -> Sequence[str]:
        from abs_sinks.postgres.apply.forgetting import forget_positions, remove_traces

        if letters is None:
            return forget_positions(options, state)
        return remove_traces(options, state, letters=letters)

    def container(self, target: str) -> str:
        """Server and database."""
        return "/".join(target.split("/")[:2])


def _check_new(options: PostgresOptions, job: str | None) -> None:
    """Raise IdentityError if the job has committed to the table, which is missing."""
    from abs_sinks.postgres.register import PostgresRegister

    stored = None if job is None else PostgresRegister(options).load(job)
    error = missing_target(None if stored is None else stored.state)
    if error is not None:
        raise error


FORMAT = PostgresFormat()
