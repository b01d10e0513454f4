"""Watches the running job from outside: its checkpoint folder and the database.

The demo's output is based on this, so nothing comes from the job itself.
"""

from __future__ import annotations

import contextlib
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, LiteralString

import psycopg
from psycopg import Connection, sql

from abs_chaos.moments import Sight
from abs_chaos.watch import CheckpointWatch, names_in, newest
from abs_core.codec import state_from_text
from abs_core.errors import UnavailableError
from abs_core.model import JobState
from abs_demo.engine import Engine
from abs_demo.hops import JOB, TABLE
from abs_demo.job import UNSAFE

STATE_SCHEMA = "abs"
_QUIET_WITHIN_S = 2.0
_OTHERS = """select count(*) from pg_stat_activity where datname = current_database()
    and backend_type = 'client backend' and pid <> pg_backend_pid()"""

_PREPARED = "(select count(*) from pg_prepared_xacts where database = current_database())"
_STAGED = f"""(select count(*) from pg_class where relnamespace = '{STATE_SCHEMA}'::regnamespace
    and relkind = 'r' and relname not in ('register', 'marker'))"""
_IN_DOUBT = {
    "2pc": ("prepared transaction", _PREPARED),
    "wal": ("staging table", _STAGED),
    "idempotent": ("staging table", _STAGED),
}


class Watch(ABC):
    """Watches one job, over a connection of its own.

    Attributes:
        thing: name of one thing in doubt, for people.
    """

    thing: str

    def __init__(self, connection: Connection[Any], checkpoint: Path) -> None:
        self._connection = connection
        self._checkpoint = checkpoint
        self._files = CheckpointWatch(checkpoint)

    @abstractmethod
    def look(self, *, closely: bool = True) -> Sight:
        """The visible state; takes about a millisecond.

        Without ``closely`` it leaves out slower queries that only aiming a kill needs.
        """

    def settled(self) -> Sight:
        """The state after a kill, once no session of the job is busy in the server any more.

        The server carries out a statement that had reached it, although its client is dead.
        """
        give_up = time.monotonic() + _QUIET_WITHIN_S
        while self._number(_OTHERS) and time.monotonic() < give_up:
            time.sleep(0.005)
        return self.look()

    def rows(self) -> int:
        """Visible rows of the table; takes some ten milliseconds."""
        return self._number(f"select count(*) from {TABLE}")

    def _number(self, query: LiteralString) -> int:
        row = self._connection.execute(query).fetchone()
        assert row is not None
        return int(row[0])


@contextlib.contextmanager
def watching(
    protocol: str, url: str, checkpoint: Path, engine: Engine = Engine.SPARK
) -> Iterator[Watch]:
    """A watch on the demo's job, with a connection of its own.

    Raises UnavailableError as ``database_errors``.
    """
    with (
        database_errors(),
        psycopg.connect(url, autocommit=True, application_name="abs-demo watch") as connection,
    ):
        if protocol == UNSAFE:
            yield PlainWatch(connection, checkpoint)
        else:
            kind = RegisterWatch if engine is Engine.SPARK else EmbeddedWatch
            yield kind(connection, checkpoint, protocol)


@contextlib.contextmanager
def database_errors() -> Iterator[None]:
    """Map every error of the database to UnavailableError: the demo does nothing it may refuse."""
    try:
        yield
    except psycopg.Error as error:
        raise UnavailableError(
            f"The demo's database does not answer: {str(error).strip()}",
            remedy="check whether something stopped it, and run the demo again.",
        ) from error


class RegisterWatch(Watch):
    """Watches an exactly-once job: it has a register."""

    def __init__(self, connection: Connection[Any], checkpoint: Path, protocol: str) -> None:
        super().__init__(connection, checkpoint)
        self.thing, in_doubt = _IN_DOUBT[protocol]
        self._exists = False
        self._query = sql.SQL("select (select state::text from {} where job = %s), {}").format(
            sql.Identifier(STATE_SCHEMA, "register"), sql.SQL(in_doubt)
        )

    def look(self, *, closely: bool = True) -> Sight:
        # In this order: what Spark notes after the target was asked is not taken for older news.
        planned = newest(names_in(self._checkpoint / "offsets"))
        state, in_doubt = self._register()
        noted = newest(names_in(self._checkpoint / "commits"))
        if state is None:
            return Sight(planned, noted, in_doubt=in_doubt)
        undone = sum(len(decision.committables) for decision in state.open)
        return Sight(
            planned,
            noted,
            finished=state.frontier,
            undone=undone if state.open else None,
            in_doubt=in_doubt,
            generation=state.generation,
        )

    def _register(self) -> tuple[JobState | None, int]:
        if not self._exists:
            answer = self._connection.execute(
                "select to_regclass(%s) is not null", (f"{STATE_SCHEMA}.register",)
            ).fetchone()
            self._exists = answer is not None and answer[0]
            if not self._exists:
                return None, 0
        row = self._connection.execute(self._query, (JOB,)).fetchone()
        assert row is not None
        state = None if row[0] is None else state_from_text(row[0], "the demo's register")
        return state, int(row[1])


class EmbeddedWatch(RegisterWatch):
    """Watches the embedded runtime: an epoch is always current, and no record follows a commit."""

    def look(self, *, closely: bool = True) -> Sight:
        begun = newest(names_in(self._checkpoint / "blobs"))
        seen = super().look()
        following = 0 if seen.finished is None else seen.finished + 1
        planned = following if begun is None else max(begun, following)
        return replace(seen, planned=planned, noted=seen.finished)


class PlainWatch(Watch):
    """Watches a job without a register, as ``abs chaos`` does."""

    thing = "transaction"

    def look(self, *, closely: bool = True) -> Sight:
        return self._files.look()

    def settled(self) -> Sight:
        super().settled()
        return self._files.settled()
