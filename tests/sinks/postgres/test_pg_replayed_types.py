"""A dead letter of every type that a table takes is replayed as the row is written directly."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from itertools import chain, count
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from abs_clients.arrow import is_list, plain_type, taken
from abs_clients.postgres.name import TableName
from abs_core.contracts import Task
from abs_core.errors import AbsError
from abs_core.model import Wrote
from abs_sinks.deadletters import row
from abs_sinks.postgres import PostgresOptions, PostgresSink
from abs_sinks.postgres.columns.plan import plan_columns
from abs_sinks.postgres.columns.table import CatalogTable, read_table
from abs_sinks.postgres.columns.type_mapping import Wire, fit
from abs_sinks.postgres.columns.types import Column, PgType
from abs_sinks.postgres.letters import refused_rows
from abs_sinks.postgres.replay import PostgresLetters
from abs_sinks.refusals import MisfitError
from abs_testing.engine import Run
from tests import sample
from tests.kit.any_arrays import DECIMALS, NUMBERS, OTHERS, UNITS, any_array
from tests.planted import Defect, planted
from tests.sinks.postgres.buried import Buried, buried

pytestmark = pytest.mark.services

ROWS = 6
WIDTH = 120
"""Columns of a table: a row of as many fits a page of the server."""

_numbers = count()

JSON_TEXTS = [
    '{"a": 1.50, "b": [1e2, null], "abs:plain": {"abs:arrow": "x"}}',
    "1.0",
    "null",
    '"x"',
]
TEXTS = {
    "text": ["", "a", 'é "\\\n', "null", "1.50", "{}", '{"abs:arrow":"!"}'],
    "varchar(9)": ["", "a  ", "é"],
    "char(5)": ["a", "bc  d"],
    "mood": ["sad", "so so"],
    "json": JSON_TEXTS,
    "jsonb": JSON_TEXTS,
    "uuid": ["00112233-4455-6677-8899-aabbccddeeff", "00112233445566778899AABBCCDDEEFF"],
    "numeric": ["1.50", "-0", "NaN", "100000000000000000000000000000000000000000.000", "Infinity"],
    "numeric(9,2)": ["1.5", "NaN", "-9999999.99"],
    "price": ["1.5", "-9999999.99"],
    "date": ["2024-02-29", "infinity", "0044-03-15 BC", "12024-01-01"],
    "time": ["12:00:00.5", "24:00:00"],
    "timetz": ["12:00:00+05:30"],
    "timestamp": ["2024-02-29 12:00:00.123456", "-infinity", "0044-03-15 12:00:00 BC"],
    "timestamp(0)": ["2024-02-29 12:00:00"],
    "timestamptz": ["2024-02-29 12:00:00.123456+05:30", "infinity"],
    "interval": ["1 year -2 mons +3 days -04:05:06.789", "-1 days", "P1Y2M"],
    "inet": ["10.0.0.1/8", "::1"],
    "cidr": ["10.0.0.0/8"],
    "macaddr": ["08:00:2b:01:02:03"],
    "int4range": ["[1,5)", "empty", "(,7]"],
    "numrange": ["[1.50,2.0)"],
    "int4multirange": ["{[1,5),[7,9)}"],
    "tsrange": ['["2024-01-01 00:00:00","2024-01-02 00:00:00")'],
    "tsvector": ["'a':1 'b'"],
    "tsquery": ["'a' & 'b'"],
    "bit(3)": ["101"],
    "bit varying": ["1", "0101"],
    "point": ["(1.5,2)"],
    "path": ["[(1,2),(3,4)]"],
    "box": ["(3,4),(1,2)"],
    "pg_lsn": ["0/16B3748"],
    "tid": ["(1,2)"],
    "jsonpath": ['$."a"'],
}
"""Types whose texts a column of strings takes, and some of each."""

OTHER_TYPES = ["boolean", "smallint", "integer", "bigint", "real", "double precision", "bytea"]
OTHER_TYPES += ["numeric(40,2)", "numeric(9,4)", "interval day to second"]
TYPES = [*TEXTS, *OTHER_TYPES]

LEAVES = [*NUMBERS, *OTHERS, *(pa.duration(unit) for unit in UNITS)]
LEAVES += [pa.timestamp(unit, zone) for unit in UNITS for zone in (None, "UTC", "+05:30")]
LEAVES += [
    make(digits, scale)
    for make, most in DECIMALS
    for digits, scale in ((3, -1), (4, 4), (5, 2), (min(most, 36), -2), (38, 7), (38, -3))
    if digits <= most
]


def nested_in(leaf: pa.DataType) -> Sequence[pa.DataType]:
    """The type alone, and in each kind of others."""
    key = pa.string() if leaf.equals(pa.null()) else leaf
    stored = leaf.storage_type if isinstance(leaf, pa.BaseExtensionType) else leaf
    return [
        *(leaf, pa.dictionary(pa.int32(), stored), pa.run_end_encoded(pa.int32(), stored)),
        *(pa.list_(leaf), pa.large_list_view(leaf), pa.list_(leaf, 2)),
        *(pa.list_(pa.list_(leaf, 2), 2), pa.list_(pa.dictionary(pa.int32(), stored))),
        *(pa.struct([("x", leaf), ("y", pa.list_(leaf))]), pa.list_(pa.struct([("abs:x", leaf)]))),
        *(pa.map_(pa.string(), leaf), pa.map_(key, pa.int64())),
    ]


@dataclass(frozen=True)
class Cell:
    """A type of Arrow's in a column of a type."""

    arrow: pa.DataType
    label: str
    pg: PgType

    def __str__(self) -> str:
        return f"{self.arrow} in {self.label}"

    @property
    def is_text(self) -> bool:
        """Whether the server alone knows the type's binary form."""
        return fit(self.arrow, self.pg).wire is Wire.TEXT

    def values(self, random: Random) -> pa.Array:
        """Values that the column takes, and NULL."""
        schema = pa.schema([("c", self.arrow)])
        column = Column("c", self.pg)
        encoder = plan_columns(schema, CatalogTable("public", "t", 1, (column,))).encoder()
        encoder.header()
        made = self._any(random)
        batch = pa.RecordBatch.from_arrays([made], schema=schema)
        good = [row for row, why in enumerate(encoder.bad_rows(batch).which) if why < 0]
        if not good:
            return pa.nulls(ROWS, self.arrow)
        return taken(batch, pa.array((good * ROWS)[:ROWS])).column(0)

    def _any(self, random: Random) -> pa.Array:
        texts = TEXTS.get(self.label.removesuffix("[]"), [])
        of_text = plain_type(self.arrow)
        lists = 0
        while pa.types.is_list(of_text):
            of_text, lists = of_text.value_type, lists + 1
        if not pa.types.is_string(of_text) or not texts:
            return any_array(random, self.arrow, 4 * ROWS)

        def one(depth: int) -> Any:
            if not depth:
                return random.choice([*texts, None])
            return [one(depth - 1) for _ in range(2)]

        return as_type([one(lists) for _ in range(ROWS)], self.arrow)


def as_type(texts: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """An array of these texts, or lists of texts."""
    if isinstance(kind, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(kind, pa.array(texts, kind.storage_type))
    if pa.types.is_dictionary(kind):
        places = pa.array(range(len(texts)), kind.index_type)
        return pa.DictionaryArray.from_arrays(places, pa.array(texts, kind.value_type))
    if pa.types.is_run_end_encoded(kind):
        ends = pa.array(range(1, len(texts) + 1), kind.run_end_type)
        return pa.RunEndEncodedArray.from_arrays(ends, pa.array(texts, kind.value_type), kind)
    if is_list(kind):
        inner = as_type(list(chain(*texts)), kind.value_type)
        if pa.types.is_fixed_size_list(kind):
            return pa.FixedSizeListArray.from_arrays(inner, type=kind)
        ends = range(0, 2 * len(texts) + 1, 2)
        if pa.types.is_list(kind):
            return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), inner, kind)
        starts = pa.array(ends[:-1], pa.int64())
        sizes = pa.array([2] * len(texts), pa.int64())
        return pa.LargeListViewArray.from_arrays(starts, sizes, inner, kind)
    return pa.array(texts, kind)


ARROW = [arrow for leaf in LEAVES for arrow in nested_in(leaf)]


def cells(types: Mapping[str, PgType], arrow: pa.DataType) -> Iterator[Cell]:
    """The columns that take the type."""
    for label, pg in types.items():
        with suppress(MisfitError):
            fit(arrow, pg)
            yield Cell(arrow, label, pg)


def types_of(harness: Buried) -> dict[str, PgType]:
    db, labels = harness.db, [*TYPES, *(f"{label}[]" for label in TYPES if label != "box")]
    db.execute("drop type if exists mood cascade; drop domain if exists price cascade")
    db.execute("create type mood as enum ('sad', 'so so'); create domain price as numeric(9,2)")
    columns = ", ".join(f"c{n} {label}" for n, label in enumerate(labels))
    db.execute(f"drop table if exists all_types; create table all_types ({columns})")
    table = read_table(db, TableName.parse("all_types"))
    db.execute("drop table all_types")
    return dict(zip(labels, (column.type for column in table.columns), strict=True))


def replayed(harness: Buried, chosen: Sequence[Cell], protocol: str) -> dict[str, object]:
    """What differs in a table of these columns whose rows were all refused first, by column.

    Where the letters cannot be replayed, the columns are halved until the ones are found.
    """
    direct = f"direct{next(_numbers)}"
    refused, dead = f"{direct}_refused", f"{direct}_dead"
    names = [f"c{n}" for n in range(len(chosen))]
    columns = [cell.values(Random(f"{cell} {sample.seed()}")) for cell in chosen]
    fields = [("id", pa.int64()), *zip(names, (cell.arrow for cell in chosen), strict=True)]
    arrays = [pa.array(range(ROWS), pa.int64()), *columns]
    batch = pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))
    declared = ", ".join(f"{n} {c.label}" for n, c in zip(names, chosen, strict=True))
    harness.db.execute(
        f"create table {direct} (id bigint primary key, {declared}); create table {refused} "
        f"(like {direct} including all, constraint no check (id < 0))"
    )
    texts = {"url": harness.url, "stateschema": harness.schema, "protocol": protocol}
    if protocol == "idempotent":
        texts |= {"write": "upsert", "key": "id"}
    write({**texts, "dbtable": direct}, batch)
    place = {"dbtable": refused, "deadletter": dead, "deadlettermax": "1"}
    write({**texts, **place}, batch)
    harness.db.execute(f"alter table {refused} drop constraint no")
    again = {**texts, **place, "protocol": "wal"}
    kept = PostgresLetters(PostgresOptions.parse(again), again)
    ids = [letter["id"] for letter in kept.found()]
    assert len(ids) == ROWS
    try:
        assert kept.replay(ids) == ROWS
    except (AbsError, ArithmeticError, MemoryError) as error:
        if len(chosen) == 1:
            return {str(chosen[0]): error}
        half = len(chosen) // 2
        parts = (chosen[:half], chosen[half:])
        return {
            name: why for part in parts for name, why in replayed(harness, part, protocol).items()
        }
    differing: dict[str, object] = {}
    for name, cell in zip(names, chosen, strict=True):
        # A zero has no sign in jsonb, but two texts.
        shown = name if cell.label.startswith("jsonb") else f"{name}::text"
        query = (
            f"select id, d.{name}::text, r.{name}::text from {direct} d left join {refused} r "
            f"using (id) where d.{shown} is distinct from r.{shown}"
        )
        if rows := harness.db.execute(query).fetchall():
            differing[str(cell)] = rows
    harness.db.execute(f"drop table {direct}, {refused}, {dead}")
    return differing


def write(texts: Mapping[str, str], batch: pa.RecordBatch) -> None:
    sink = PostgresSink(PostgresOptions.parse(texts), batch.schema, co_commit=True)
    run = Run(sink, texts["dbtable"])
    state, _ = run.begin(0)
    writer = sink.writer(Task(state.register, run.job, state.generation, 0, 0, "a1"))
    writer.write(batch)
    run.commit(0, [Wrote(batch.num_rows, writer.pre_commit())])


def check_some(url: str) -> None:
    """Of a fixed sample of Arrow's types, each in one column that takes it."""
    with buried(url, "wal-append") as harness:
        types, random = types_of(harness), Random(WIDTH)
        fitting = [list(cells(types, arrow)) for arrow in sample.cut(ARROW, WIDTH, "replayed")]
        chosen = [random.choice(columns) for columns in fitting if columns]
        # One column of text makes the whole COPY one.
        for text in (True, False):
            assert not replayed(harness, [one for one in chosen if one.is_text == text], "wal")


def test_letters_of_some_types_are_replayed_as_written_directly(shared_database: str) -> None:
    check_some(shared_database)


BUGS: dict[str, tuple[pa.DataType, Defect]] = {
    "intervals that are no numbers": (pa.duration("ms"), (row, "_interval", tuple)),
    "texts of lists that become JSON": (pa.string(), (refused_rows, "is_list", lambda kind: False)),
    "zeros of a wider column": (pa.decimal128(36, -2), (row, "_decimal", Decimal)),
    "decimals of too many digits": (pa.decimal128(38, -3), (row, "_wide", lambda plain: plain)),
    "keys that are there twice": (pa.int8(), (row, "_Object", dict)),
}


@pytest.mark.campaign
@pytest.mark.parametrize("bug", BUGS)
def test_a_letter_that_loses_a_type_is_found(shared_database: str, bug: str) -> None:
    leaf, defect = BUGS[bug]
    with buried(shared_database, "wal-append") as harness:
        types = types_of(harness)
        every = [cell for arrow in nested_in(leaf) for cell in cells(types, arrow)]
        with planted(defect):
            assert not replayed(harness, sample.cut(every, WIDTH, bug), "wal")


@pytest.mark.campaign
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("protocol", ["wal", "2pc", "idempotent"])
def test_letters_of_each_type_are_replayed_as_written_directly(
    shared_database: str, protocol: str
) -> None:
    with buried(shared_database, "wal-append") as harness:
        types = types_of(harness)
        every = [cell for arrow in ARROW for cell in cells(types, arrow)]
        assert len(every) > 4000
        for start in range(0, len(every), WIDTH):
            assert not replayed(harness, every[start : start + WIDTH], protocol)
