"""A copy of a table with unique and foreign keys is the source's table, whatever a source can do."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import closing

import psycopg
import pytest

from abs_sinks.postgres.apply import changes_sql
from tests import sample
from tests.planted import planted
from tests.sinks.postgres.dead_rows import Numbered, Played, World

pytestmark = pytest.mark.services

PLAIN = "id bigint primary key, at bigint, of bigint, v text check (v <> 'bad')"
REFERS = "alter table {0} add foreign key (of) references {0};"

SHAPES = {
    "unique": "alter table {0} add unique (v)",
    "unique, not null": "alter table {0} add unique (v), alter v set not null",
    "tree": REFERS,
    "tree, unique": f"{REFERS} alter table {{0}} add unique (v)",
    "tree, unique, deferrable": (
        "alter table {0} add foreign key (of) references {0} deferrable;"
        "alter table {0} add unique (v) deferrable, alter v set not null"
    ),
}


def epochs(
    db: psycopg.Connection[tuple[object, ...]], source: str, seed: int
) -> Iterator[list[Numbered]]:
    """Statements that the source accepts, each a transaction, as changes; cut anywhere between them."""
    draw, at = random.Random(seed), 0
    for _ in range(6):
        changes: list[Numbered] = []
        for _ in range(draw.randint(1, 12)):
            id_, other, v = draw.randrange(5), draw.randrange(5), draw.choice("abcdef")
            of = draw.choice([None, other])
            query = draw.choice(
                [
                    "insert into {0} (id, of, v) values ({1}, {2}, {3})",
                    "update {0} set v = {3} where id = {1}",
                    "update {0} set of = {2}, v = {3} where id = {1}",
                    "update {0} set id = {4} where id = {1}",
                    "delete from {0} where id = {1}",
                ]
            )
            before = db.execute(f"select id, of, v from {source} where id = {id_}").fetchone()
            literal = [source, id_, "null" if of is None else of, f"'{v}'", other]
            try:
                if not db.execute(query.format(*literal)).rowcount:
                    continue
            except psycopg.IntegrityError:
                continue
            at += 1
            new = other if "set id" in query else id_
            if before is not None and (new != id_ or query.startswith("delete")):
                changes.append((0, (id_, at, "d", None, None)))
            found = db.execute(f"select id, of, v from {source} where id = {new}").fetchall()
            changes += [(0, (row[0], at, "u", *row[1:])) for row in found]
        if draw.random() < 0.5:
            changes.append((0, (77, at, "c", None, "bad")))
        yield draw.sample(changes, len(changes))


def copied(url: str, shape: str, seed: int) -> bool:
    """Whether the copy ends as the source, and no change is dead but the bad ones."""
    world = World(SHAPES[shape], (PLAIN,))
    with closing(Played(url, world, [])) as copy, closing(Played(url, world, [])) as source:
        epoch, bad = 0, 0
        job = copy.job(buries=True)
        for changes in epochs(source.db, source.names[0], seed):
            job.apply(epoch, [row for _, row in changes])
            epoch, bad = epoch + 1, bad + sum(row[0] == 77 for _, row in changes)
            same = [
                each.db.execute(f"select id, of, v from {each.names[0]} order by id").fetchall()
                for each in (copy, source)
            ]
            if same[0] != same[1] or [row[0] for _, row in copy.letters()] != [77] * bad:
                return False
    return True


@pytest.mark.parametrize("shape", SHAPES)
def test_a_copy_ends_as_its_source(shared_database: str, shape: str) -> None:
    assert all(copied(shared_database, shape, seed) for seed in range(2))


@pytest.mark.campaign
@pytest.mark.parametrize("shape", SHAPES)
def test_many_copies_end_as_their_sources(shared_database: str, shape: str) -> None:
    seed = sample.seed()
    assert [n for n in range(seed, seed + 60) if not copied(shared_database, shape, n)] == []


def test_values_that_are_not_freed_are_found(shared_database: str) -> None:
    with planted((changes_sql, "releasing", lambda *_: [])):
        assert all(copied(shared_database, "unique", seed) for seed in range(10))
