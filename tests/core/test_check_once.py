"""``check_once`` passes a target that keeps the rules, and finds each bug that is planted in one."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock
from typing import Any

import pytest

from abs_core.ownwrite import Token
from abs_testing import OwnTarget, check_once
from tests.spark.jobs.own_write import recipe

BATCHES = [[("a", 1), ("b", 2)], [("a", 10)], [("c", 100)]]


class Balances:
    """A target in memory; a subclass breaks a rule."""

    def __init__(self) -> None:
        self.rows: dict[str, int] = {}
        self.versions: dict[str, int] = {}
        self.lock = Lock()

    def write(self, batch: Any, token: Token) -> None:
        prepared = dict(self.rows)
        for account, amount in batch:
            prepared[account] = prepared.get(account, 0) + amount
        self.transact(prepared, batch, token)

    def transact(self, prepared: dict[str, int], batch: Any, token: Token) -> None:
        with self.lock:
            if self.versions.get(token.application, -1) < token.version:
                self.commit(batch, token)

    def commit(self, batch: Any, token: Token) -> None:
        rows = dict(self.rows)
        for account, amount in batch:
            rows[account] = rows.get(account, 0) + amount
        self.rows, self.versions = rows, {**self.versions, token.application: token.version}

    def applied(self, application: str) -> int | None:
        return self.versions.get(application)

    def keep(self) -> Callable[[], None]:
        rows, versions = self.rows, self.versions

        def restore() -> None:
            self.rows, self.versions = rows, versions

        return restore


class NotCompared(Balances):
    """The version of the token is stored, and not compared."""

    def transact(self, prepared: dict[str, int], batch: Any, token: Token) -> None:
        self.commit(batch, token)


class LowerAccepted(Balances):
    """Only the same version is refused."""

    def transact(self, prepared: dict[str, int], batch: Any, token: Token) -> None:
        with self.lock:
            if self.versions.get(token.application) != token.version:
                self.commit(batch, token)


class RowsFirst(Balances):
    """The rows are durable before the version."""

    def write(self, batch: Any, token: Token) -> None:
        if self.versions.get(token.application, -1) < token.version:
            kept = dict(self.versions)
            self.commit(batch, token)
            self.versions = kept
        self.versions = {
            **self.versions,
            token.application: max(token.version, self.versions.get(token.application, 0)),
        }


class VersionFirst(Balances):
    """The version is durable before the rows."""

    def write(self, batch: Any, token: Token) -> None:
        if self.versions.get(token.application, -1) >= token.version:
            return
        self.versions = {**self.versions, token.application: token.version}
        self.commit(batch, token)


class LookedBefore(Balances):
    """The version is compared before the transaction, not in it."""

    def write(self, batch: Any, token: Token) -> None:
        if self.versions.get(token.application, -1) >= token.version:
            return
        rows = list(batch)
        with self.lock:
            self.commit(rows, token)


class Erases(Balances):
    """A look that fences, and erases what was applied."""

    def applied(self, application: str) -> int | None:
        return self.versions.pop(application, None)


class OneForAll(Balances):
    """The version is not kept by application."""

    def applied(self, application: str) -> int | None:
        return max(self.versions.values(), default=None)


class SkipsEmpty(Balances):
    """What changes no row is not committed, as some libraries do."""

    def transact(self, prepared: dict[str, int], batch: Any, token: Token) -> None:
        if batch:
            super().transact(prepared, batch, token)


class KeepsVersions(Balances):
    """A restore takes the rows back alone, as Delta's does."""

    def keep(self) -> Callable[[], None]:
        rows = self.rows

        def restore() -> None:
            self.rows = rows

        return restore


class Late(Balances):
    """A write whose client was cut off takes effect after its successor's."""

    def __init__(self) -> None:
        super().__init__()
        self.under_way: list[tuple[Any, Token]] = []

    def write(self, batch: Any, token: Token) -> None:
        older, self.under_way = self.under_way, [(batch, token)]
        super().write(batch, token)
        self.under_way = []
        for write in older:
            self.arrive(*write)

    def arrive(self, batch: Any, token: Token) -> None:
        self.transact({}, batch, token)


class LateOnceMore(Late):
    """The late one does not meet the condition."""

    def arrive(self, batch: Any, token: Token) -> None:
        self.commit(batch, token)


@contextmanager
def opened(kind: type[Balances]) -> Iterator[OwnTarget]:
    target = kind()
    yield OwnTarget(target.write, target.applied, lambda: dict(target.rows), target.keep)


class Frame(list[Any]):
    """As much of a DataFrame as a recipe for SQLite uses."""

    def select(self, *columns: str) -> Frame:
        return self

    def limit(self, count: int) -> Frame:
        return Frame(self[:count])

    def collect(self) -> Frame:
        return self


@contextmanager
def in_sqlite() -> Iterator[OwnTarget]:
    with TemporaryDirectory() as folder:
        place = str(Path(folder) / "target.db")
        write, applied = recipe("sqlite_upsert", place)
        assert applied is not None

        def read() -> object:
            with closing(sqlite3.connect(place)) as db:
                db.execute(
                    "CREATE TABLE IF NOT EXISTS balances (account INT PRIMARY KEY, amount INT)"
                )
                return sorted(db.execute("SELECT * FROM balances"))

        yield OwnTarget(write, applied, read)


@pytest.mark.parametrize("kind", [Balances, Late])
def test_a_target_that_keeps_the_rules_passes(kind: type[Balances]) -> None:
    assert len(check_once(partial(opened, kind), BATCHES, patience=0.05)) == 8


@pytest.mark.parametrize("forked", [False, True])
def test_the_recipe_for_sqlite_passes(forked: bool) -> None:
    frames = [Frame([(1, 10), (2, 20)]), Frame([(1, 5)])]
    assert len(check_once(in_sqlite, frames, forked=forked, patience=0.05)) == 8


@pytest.mark.parametrize(
    ("kind", "rule"),
    [
        (NotCompared, "a_version_that_is_not_higher_changes_nothing"),
        (LowerAccepted, "a_version_that_is_not_higher_changes_nothing"),
        (RowsFirst, "cut off before line .* of write: the rows are there alone"),
        (VersionFirst, "cut off before line .* of write: the version is there alone"),
        (LookedBefore, "it stood still before line .* of write while its successor wrote: other"),
        (Erases, "a_look_changes_nothing"),
        (SkipsEmpty, "a_batch_without_rows_leaves_its_version: its version is not stored"),
        (KeepsVersions, "restored_has_the_version_of_its_rows: the version is that of lost rows"),
        (OneForAll, "applied returns the version of another application"),
        (LateOnceMore, "cut off before line .* of write, and tried again: other rows"),
    ],
)
def test_a_planted_bug_is_found(kind: type[Balances], rule: str) -> None:
    with pytest.raises(AssertionError, match=rule):
        check_once(partial(opened, kind), BATCHES, patience=0.05)


@pytest.mark.parametrize(("batches", "why"), [(BATCHES[:1], "two"), ([[], []], "does not change")])
def test_batches_that_would_show_nothing_are_refused(batches: list[Any], why: str) -> None:
    with pytest.raises(AssertionError, match=why):
        check_once(partial(opened, Balances), batches)
