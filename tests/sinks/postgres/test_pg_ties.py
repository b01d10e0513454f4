"""Constraints that tie rows to one another: what a start says of them, and which way out helps."""

from __future__ import annotations

import pytest

from abs_core.errors import AbsError
from abs_core.model import Severity
from tests.sinks.postgres.changing import CHANGES, Changing, changing

pytestmark = pytest.mark.services

OWN = "id bigint primary key, at bigint, v text"
UNIQUE = "alter table {0} add constraint one_v unique (v)"
TREE = "alter table {0} add constraint to_self foreign key (at) references {0}"


def told(table: Changing) -> list[tuple[Severity, str]]:
    found = table.sink().preflight("job")
    return [
        (each.severity, name)
        for each in found
        for name in ("one_v", "to_self")
        if f"({name})" in each.what
    ]


@pytest.mark.parametrize("protocol", ["wal", "idempotent"])
@pytest.mark.parametrize("buries", [True, False])
@pytest.mark.parametrize("more", [UNIQUE, TREE])
def test_dead_letters_that_would_depend_on_the_cut_are_refused_at_a_start(
    shared_database: str, protocol: str, buries: bool, more: str
) -> None:
    dead = {"deadletter": "ties_dead"} if buries else {}
    with changing(shared_database, OWN, CHANGES, protocol=protocol, **dead) as table:
        table.db.execute(more.format(table.table))
        name = "one_v" if more is UNIQUE else "to_self"
        refused = [(Severity.ERROR, name)] if buries and protocol != "wal" else []
        warned = [(Severity.WARNING, name)] if more is UNIQUE else []
        assert told(table) == refused + warned


def test_a_swap_that_no_order_allows_is_applied_once_the_constraint_is_deferrable(
    shared_database: str,
) -> None:
    with changing(shared_database, OWN, CHANGES) as table:
        name = table.table
        adding = f"alter table {name} add constraint one_v exclude using btree (v with =)"
        table.db.execute(adding)
        table.apply([(1, 1, "c", "a"), (2, 2, "c", "b")])
        with pytest.raises(AbsError, match="one_v") as caught:
            table.apply([(1, 3, "u", "b"), (2, 4, "u", "a")])
        assert "DEFERRABLE" in caught.value.remedy
        table.db.execute(f"alter table {name} drop constraint one_v; {adding} deferrable")
        table.apply([(1, 3, "u", "b"), (2, 4, "u", "a")])
        assert table.rows() == [(1, 3, "b"), (2, 4, "a")]


@pytest.mark.parametrize("buries", [True, False])
def test_a_value_that_moves_in_two_epochs_stops_until_the_constraint_is_dropped(
    shared_database: str, buries: bool
) -> None:
    dead = {"deadletter": "ties_dead", "deadlettermax": "1"} if buries else {}
    with changing(shared_database, OWN, CHANGES, **dead) as table:
        table.db.execute(UNIQUE.format(table.table))
        job = table.job()
        job.apply(0, [(1, 1, "c", "mail")])
        with pytest.raises(AbsError, match="one_v") as caught:
            job.apply(1, [(2, 5, "c", "mail")])
        assert "drop" in caught.value.remedy.lower()
        table.db.execute(f"alter table {table.table} drop constraint one_v")
        job = table.job()
        job.apply(1, [(2, 5, "c", "mail")])
        job.apply(2, [(1, 5, "d", None)])
        assert table.rows() == [(2, 5, "mail")]
