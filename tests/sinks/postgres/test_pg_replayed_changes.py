"""Dead changes that are replayed are applied by their positions, as if they had come late."""

from __future__ import annotations

import random
import shlex
from collections.abc import Sequence
from contextlib import closing
from typing import Any

import pytest

from abs_core.errors import AbsError, DataError, OptionError
from abs_sinks.deadletters.letter import schema_text, written_as
from abs_sinks.deadletters.place import KeptLetters
from abs_sinks.door import format_named
from abs_sinks.postgres import PostgresOptions
from abs_sinks.postgres.replay import PostgresLetters
from tests import sample
from tests.kit.command import abs_
from tests.planted import planted
from tests.sinks.postgres.changing import BARE, OWN, PARTIAL, Change, Changing

pytestmark = pytest.mark.services

CHECKED = "v <> 'bad'"
SIDES = pytest.mark.parametrize("side", [True, False], ids=["side", "table"])


class Replaying(Changing):
    """A table that keeps dead letters; ``older``: its letters do not tell that they are changes."""

    older = False

    def kept(self, **more: str) -> KeptLetters:
        if self.older:
            self.db.execute(f"update {self.dead} set schema = %s", (self._plain_schema(),))
        places = format_named("abs-postgres").letters()
        assert places is not None
        return places.at(self.url, self.dead, self.table, more)

    @property
    def dead(self) -> str:
        return f"{self.table}_dead"

    def ids(self) -> list[int]:
        query = f"select id from {self.dead} where replayed is null order by id"
        return [id_ for (id_,) in self.db.execute(query)]

    def close(self) -> None:
        self.db.execute(f"drop table if exists {self.dead}")
        super().close()

    def _plain_schema(self) -> str:
        return schema_text(self.schema)


def replaying(url: str, *, side: bool, **more: Any) -> closing[Replaying]:
    given: dict[str, Any] = {"positions": "side"} if side else {}
    table = Replaying(url, BARE if side else OWN, **more, **given)
    table.db.execute(f"alter table {table.table} add constraint fine check ({CHECKED})")
    table.given |= {"deadletter": table.dead, "deadlettermax": "1"}
    return closing(table)


def mended(table: Replaying) -> None:
    table.db.execute(f"alter table {table.table} drop constraint fine")


@SIDES
def test_an_old_dead_change_overwrites_and_deletes_nothing_newer(
    shared_database: str, *, side: bool
) -> None:
    with replaying(shared_database, side=side) as t:
        job = t.job()
        job.apply(
            0, [(1, 5, "u", "bad"), (2, 5, "u", "bad"), (3, 5, "u", "bad"), (4, 5, "u", "bad")]
        )
        job.apply(1, [(1, 9, "u", "newer"), (2, 9, "d", None), (3, 4, "u", "older")])
        mended(t)
        assert t.kept().replay(t.ids()) == 4
        assert t.rows("id, v") == [(1, "newer"), (3, "bad"), (4, "bad")]
        assert t.kept().replay([1, 2, 3, 4]) == 0
        t.apply([(3, 4, "u", "late"), (4, 6, "u", "newer")])
        assert t.rows("id, v") == [(1, "newer"), (3, "bad"), (4, "newer")]


@SIDES
def test_a_dead_delete_deletes_only_what_is_older(shared_database: str, *, side: bool) -> None:
    with replaying(shared_database, side=side) as t:
        t.db.execute(
            "create function no_deletes() returns trigger language plpgsql as"
            " $$ begin raise 'not now'; end $$"
        )
        try:
            t.db.execute(
                f"create trigger kept before delete on {t.table}"
                " for each row execute function no_deletes()"
            )
            job = t.job()
            job.apply(0, [(1, 1, "c", "a"), (2, 1, "c", "b")])
            job.apply(1, [(1, 3, "d", None), (2, 3, "d", None)])
            job.apply(2, [(1, 5, "u", "newer")])
            assert t.rows("id, v") == [(1, "newer"), (2, "b")]
            assert len(t.ids()) == 2
            t.db.execute(f"drop trigger kept on {t.table}")
            t.kept().replay(t.ids())
            assert t.rows("id, v") == [(1, "newer")]
        finally:
            t.db.execute("drop function no_deletes() cascade")


@pytest.mark.parametrize("older", [False, True], ids=["told", "older release"])
@SIDES
def test_the_command_that_writes_changes_as_rows_is_refused_and_names_the_right_one(
    shared_database: str, *, side: bool, older: bool
) -> None:
    with replaying(shared_database, side=side) as t:
        t.older = older
        job = t.job()
        job.apply(0, [(1, 5, "u", "bad"), (2, 5, "u", "bad")])
        job.apply(1, [(1, 9, "u", "newer")])
        mended(t)
        for more in ({"write": "upsert", "key": "id"}, {"write": "append"}):
            with pytest.raises(OptionError, match="The letters are changes of table") as caught:
                t.kept(**more).replay(t.ids())
        assert t.rows("id, v") == [(1, "newer")]
        named = shlex.split(caught.value.remedy.split(" with ")[1].split(";")[0].rstrip("."))
        at = ("--url", t.url, "--deadletter", t.dead, "--dbtable", t.table, "--yes")
        done = abs_("deadletters", "replay", *map(str, t.ids()), *at, *named)
        assert (done.exit_code, done.stdout) == (0, "2 dead letters replayed\n")
        assert t.rows("id, v") == [(1, "newer"), (2, "bad")]


def test_the_command_needs_no_option_where_the_letters_tell(shared_database: str) -> None:
    with replaying(shared_database, side=True, applyasdeletes='"op"=x,d') as t:
        t.job().apply(0, [(1, 5, "u", "bad"), (2, 5, "x", None)])
        mended(t)
        at = ("--url", t.url, "--deadletter", t.dead, "--dbtable", t.table, "--yes")
        done = abs_("deadletters", "replay", *map(str, t.ids()), *at)
        assert (done.exit_code, done.stdout) == (0, "1 dead letters replayed\n")
        assert t.rows("id, v") == [(1, "bad")]


def test_a_dead_change_that_cannot_be_known_is_refused_again(shared_database: str) -> None:
    given = {"unchanged": "same", "schema": PARTIAL}
    with replaying(shared_database, side=True, **given) as t:
        t.db.execute(f"alter table {t.table} add column big text")
        job = t.job()
        job.apply(0, [(1, 5, "u", "a", None, ["big"]), (2, 1, "c", "b", "B", None)])
        assert len(t.ids()) == 1
        with pytest.raises(AbsError, match="its row does not exist"):
            t.kept().replay(t.ids())
        t.apply([(1, 3, "c", "snapshot", "BIG", None)])
        assert t.kept().replay(t.ids()) == 1
        assert t.rows("id, v, big") == [(1, "a", "BIG"), (2, "b", "B")]


@pytest.mark.parametrize("given", [{"exceptcolumns": "big"}, {"schemachange": "ignore"}])
def test_columns_that_the_job_does_not_write_are_not_missed(
    shared_database: str, given: dict[str, str]
) -> None:
    """A letter has the columns that were staged; a change may list the others as unchanged."""
    more = {"unchanged": "same", "schema": PARTIAL, **given}
    with replaying(shared_database, side=True, **more) as t:
        t.job().apply(0, [(1, 5, "c", "bad", "x", None), (2, 5, "u", "bad", None, ["big"])])
        mended(t)
        assert t.kept().replay(t.ids()) == 2
        assert t.rows("id, v") == [(1, "bad"), (2, "bad")]


@SIDES
def test_a_change_that_its_letter_does_not_show_is_refused(
    shared_database: str, *, side: bool
) -> None:
    with replaying(shared_database, side=side, deadlettercolumns="v") as t:
        t.apply([(1, 5, "c", "bad")])
        mended(t)
        with pytest.raises(DataError, match="does not show the columns v"):
            t.kept().replay(t.ids())
        assert t.rows("id, v") == []


def _history(draw: random.Random, size: int) -> list[list[Change]]:
    """Epochs of changes in any order, some refused by CHECK; each position of a key is used once."""
    ids = range(1, 5)
    places = [(id_, at) for id_ in ids for at in range(1, size)]
    draw.shuffle(places)
    changes: list[Change] = []
    for id_, at in places[: 3 * size]:
        if draw.random() < 0.25:
            changes.append((id_, at, "d", None))
        else:
            changes.append((id_, at, "u", "bad" if draw.random() < 0.4 else f"{id_} at {at}"))
    epochs = sorted(draw.sample(range(1, len(changes)), 3))
    return [changes[a:b] for a, b in zip([0, *epochs], [*epochs, len(changes)], strict=True)]


def _model(changes: Sequence[Change]) -> list[tuple[Any, ...]]:
    """All changes in the order of their positions."""
    rows: dict[int, str] = {}
    for id_, _, op, v in sorted(changes, key=lambda change: change[1]):
        if op == "d":
            rows.pop(id_, None)
        else:
            rows[id_] = v
    return sorted(rows.items())


def _check(url: str, seed: int, *, side: bool) -> None:
    draw = random.Random(seed)
    epochs = _history(draw, 8)
    every = [change for epoch in epochs for change in epoch]
    with replaying(url, side=side) as t:
        job = t.job()
        for number, epoch in enumerate(epochs[:-1]):
            job.apply(number, epoch)
        query = f"select id, \"row\" ->> 'id', \"row\" ->> 'at' from {t.dead}"
        letters = {id_: (int(key), int(at)) for id_, key, at in t.db.execute(query)}
        mended(t)
        ids = list(letters)
        draw.shuffle(ids)
        half = ids[: len(ids) // 2]
        t.kept().replay(half)
        job.apply(len(epochs) - 1, epochs[-1])
        # What is not replayed has never come.
        waiting = {letters[id_] for id_ in ids if id_ not in half}
        assert t.rows("id, v") == _model([c for c in every if c[:2] not in waiting])
        for some in (ids[len(half) :], ids):
            t.kept().replay(some)
            assert t.rows("id, v") == _model(every)
        assert t.ids() == []


NUMBERS = [*range(2), *(pytest.param(n, marks=pytest.mark.campaign) for n in range(2, 60))]


@pytest.mark.parametrize("number", NUMBERS)
@SIDES
def test_a_table_with_all_letters_replayed_has_all_changes_in_order(
    shared_database: str, number: int, *, side: bool
) -> None:
    _check(shared_database, sample.seed() + number, side=side)


def test_the_check_finds_a_replay_that_asks_for_no_position(shared_database: str) -> None:
    plain = {"write": "upsert", "key": "id", "orderby": "at", "schemachange": "ignore"}

    def as_rows(self: PostgresLetters, letters: Any, _: object) -> PostgresOptions:
        assert self._texts is not None
        state = written_as(letters[0]["schema"])["stateschema"]
        return PostgresOptions.parse({**self._texts, **plain, "stateschema": state})

    with planted((PostgresLetters, "_written_by", as_rows)):
        for number in range(5):
            _check(shared_database, number, side=False)
