"""A job on a REST catalog asks for a table's history only if somebody else has changed the table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.table import Table
from pyiceberg.types import StringType
from requests import PreparedRequest, Response, Session

from abs_clients.iceberg import catalogs
from abs_testing import SCHEMA
from abs_testing.case import Case
from tests.planted import Defect, planted
from tests.sample import seed
from tests.sinks.iceberg.harness import TableHarness

pytestmark = pytest.mark.campaign

BRIEF, WHOLE = "refs", "all"


@pytest.fixture
def harness(rest: dict[str, str], tmp_path: Path) -> TableHarness:
    # As somebody may have it in a configuration file: the sink needs all snapshots.
    given = {"catalog.snapshot-loading-mode": BRIEF}
    return TableHarness(tmp_path, None, given, catalog=rest)


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """How much was asked for at each load of a table."""
    asked = list[str]()
    send = Session.send

    def noted(session: Session, request: PreparedRequest, **options: Any) -> Response:
        path, _, query = str(request.url).partition("?")
        if request.method == "GET" and "/tables/" in path:
            asked.append(BRIEF if query == "snapshots=refs" else WHOLE)
        return send(session, request, **options)

    monkeypatch.setattr(Session, "send", noted)
    return asked


def table_of(harness: TableHarness) -> Table:
    return harness.foreign.load_table(harness.name)


def test_an_epoch_asks_for_no_history_but_that_of_others(
    harness: TableHarness, loads: list[str]
) -> None:
    """It grows with each snapshot: parsed three times for each epoch, it made a trend."""
    case = Case(harness)
    case.run().epoch(0, [(0, "a")])
    loads.clear()
    for number in (1, 2):
        case.run().epoch(number, [(number, "a")])
    assert set(loads) == {BRIEF}
    table_of(harness).append(pa.table({"id": [9], "value": ["a"]}, schema=SCHEMA))
    loads.clear()
    case.run().epoch(3, [(3, "a")])
    assert loads.count(WHOLE) == 1
    assert len(harness.read()) == 5


def append(table: Table) -> None:
    table.append(pa.table({"id": [-1], "value": ["a"]}, schema=SCHEMA))


def set_property(table: Table) -> None:
    with table.transaction() as change:
        change.set_properties({"owner": str(table.metadata.last_updated_ms)})


def add_column(table: Table) -> None:
    with table.update_schema() as change:
        change.add_column(f"c{len(table.schema().fields)}", StringType())


def add_tag(table: Table) -> None:
    if snapshot := table.current_snapshot():
        table.manage_snapshots().create_tag(snapshot.snapshot_id, f"t{len(table.refs())}").commit()


def expire(table: Table) -> None:
    heads = {ref.snapshot_id for ref in table.refs().values()}
    if old := [one.snapshot_id for one in table.snapshots() if one.snapshot_id not in heads]:
        table.maintenance.expire_snapshots().by_ids(old[:2]).commit()


def roll_back(table: Table) -> None:
    if snapshots := table.snapshots():
        table.manage_snapshots().set_current_snapshot(snapshots[0].snapshot_id).commit()


CHANGES: list[Callable[[Table], None]] = [
    *(append, set_property, add_column, add_tag, expire, roll_back),
]


def compared(harness: TableHarness, steps: int) -> None:
    """After each of random changes, ours or others', what is kept is what the server has."""
    random = Random(f"rest {seed()}")
    address = harness.options.address
    case = Case(harness)
    case.run().epoch(0, [(0, "a")])
    for number in range(steps):
        random.choice(CHANGES)(table_of(harness))
        for _ in range(random.randint(0, 2)):
            snapshot = address.load()
            assert snapshot is not None
            if random.random() < 0.5:
                address.widen(pa.schema([(f"w{number}", pa.int64())]))
                snapshot = address.load()
            assert snapshot is not None
            found, due = snapshot._table, table_of(harness)
            assert found.metadata == due.metadata, number
            assert found.metadata_location == due.metadata_location


def test_what_is_kept_of_a_table_is_what_the_server_has(harness: TableHarness) -> None:
    compared(harness, 40)


def test_other_metadata_at_the_same_place_are_seen(harness: TableHarness) -> None:
    """As of a catalog that was restored, and numbers its metadata files."""
    Case(harness).run().epoch(0, [(0, "a")])
    file = Path(table_of(harness).metadata_location.removeprefix("file:"))
    file.with_name(f".{file.name}.crc").unlink()  # by which Hadoop would find it damaged
    file.write_text(file.read_text().replace('"last-column-id":2', '"last-column-id":12'))
    snapshot = harness.options.address.load()
    assert snapshot is not None
    assert snapshot._table.metadata.last_column_id == 12


def the_first_state(self: catalogs._Loaded, identifier: Any) -> Table:
    name = ("db",) if isinstance(identifier, str) else tuple(identifier)
    state = self.states.get(name)
    table: Table = self._whole(identifier)
    if state is None:
        self.states[name] = catalogs._State(table.metadata_location, table.metadata)
    else:
        table.metadata = state.metadata
    return table


BUGS: Mapping[str, Defect] = {
    "the first state": (catalogs._Loaded, "__call__", the_first_state),
    "brief is taken for whole": (
        catalogs._Loaded,
        "__call__",
        lambda self, identifier: self._brief.load_table(identifier),
    ),
}


@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_state_of_before_is_found(harness: TableHarness, bug: str) -> None:
    with planted(BUGS[bug]):
        compared(harness, 10)


def test_a_planted_look_at_the_place_alone_is_found(harness: TableHarness) -> None:
    with planted((catalogs, "_brief", lambda metadata: None)):
        test_other_metadata_at_the_same_place_are_seen(harness)
