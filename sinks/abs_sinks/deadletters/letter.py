"""Dead letters as values: which row a target refused, why, and the row itself (``row``)."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from abs_clients.arrow import taken
from abs_sinks.deadletters.row import json_values, object_text
from abs_sinks.refusals import BadRows


class Field(NamedTuple):
    """A field of a dead letter as it is kept: Arrow types, tables, checks and JSON follow from it."""

    name: str
    type: pa.DataType = pa.string()
    needed: bool = True
    json: bool = False
    """Whether its text is JSON."""


OF_ROW = (
    Field("code"),
    Field("message"),
    Field("column", needed=False),
    Field("key", needed=False, json=True),
    Field("position", needed=False, json=True),
    Field("row", json=True),
)
"""What is said of a row, see ``DeadLetter``."""

SHAPE = (
    Field("job"),
    Field("sink"),
    Field("epoch", pa.int64()),
    Field("at", pa.timestamp("us", "UTC")),
    *OF_ROW,
    Field("schema"),
)
"""All that is kept of a dead letter. Places keep it for long: fields may only be added."""

LETTERS = pa.schema([pa.field(field.name, field.type, not field.needed) for field in SHAPE])
"""The columns of dead letters as rows."""

LISTED = tuple(field.name for field in SHAPE if field.name not in ("row", "schema"))
"""What a list shows of a letter: nothing that may be personal but the key."""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """One row that was refused.

    Args:
        code: SQLSTATE, or one of ``refusals.Code``.
        message: shows no value.
        column: of the input or of the target; None: the row as a whole, or unknown.
        key: the columns that identify the row, as a JSON object; None: not known.
        position: its place in the source, the same way.
        row: all columns but those left out.
    """

    code: str
    message: str
    column: str | None
    key: str | None
    position: str | None
    row: str


@dataclass(frozen=True, slots=True)
class Shown:
    """Which of a row's columns a dead letter has.

    Args:
        key: the columns that identify a row.
        left_out: columns that no dead letter shows (option ``deadlettercolumns``).
    """

    key: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()

    def columns(self, schema: pa.Schema) -> list[str]:
        """The columns of the field ``row``."""
        hidden = {name.lower() for name in self.left_out}
        return [name for name in schema.names if name.lower() not in hidden]

    def position(self, schema: pa.Schema) -> list[str]:
        """The columns of the field ``position``: a Kafka source's, if the input has them."""
        names = self.columns(schema)
        return (
            [n for n in ("topic", "partition", "offset") if n in names] if "offset" in names else []
        )

    def keys(self, schema: pa.Schema) -> list[str]:
        """The columns of the field ``key``."""
        names = self.columns(schema)
        return [name for name in self.key if name in names]


Why = tuple[int, str, str, str | None]
"""A bad row's number in its batch, and code, message and column."""


def why_bad(bad: BadRows) -> list[Why]:
    """Of each bad row, in order."""
    rows = np.flatnonzero(bad.which >= 0).tolist()
    reasons = [bad.reasons[bad.which[row]] for row in rows]
    return [
        (row, str(reason.code), reason.message, reason.column or None)
        for row, reason in zip(rows, reasons, strict=True)
    ]


def dead_letters(batch: pa.RecordBatch, bad: Sequence[Why], shown: Shown) -> list[DeadLetter]:
    """A dead letter for each bad row, in order."""
    rows = [row for row, *_ in bad]
    refused = taken(batch, pa.array(rows, pa.int64()))
    schema = batch.schema
    texts = {name: json_values(refused.column(name)) for name in shown.columns(schema)}

    def objects(names: Sequence[str]) -> Iterator[str | None]:
        for n in range(len(rows)):
            yield object_text({name: texts[name][n] for name in names}) if names else None

    made = zip(
        bad,
        objects(shown.keys(schema)),
        objects(shown.position(schema)),
        objects(shown.columns(schema)),
        strict=True,
    )
    return [
        DeadLetter(code, message, column, key, position, row or "{}")
        for (_, code, message, column), key, position, row in made
    ]


_WRITTEN = b"abs:written"


def schema_text(schema: pa.Schema, written: Mapping[str, str] | None = None) -> str:
    """The schema of the rows, for the field ``schema``.

    Args:
        written: options that say how the rows are written, where they are no plain ones: changes,
            records with a schema, files of some format.
    """
    schema = schema.remove_metadata()
    if written:
        schema = schema.with_metadata({_WRITTEN: json.dumps(written)})
    return base64.b64encode(schema.serialize().to_pybytes()).decode()


def written_as(text: str) -> dict[str, str]:
    """The options that ``schema_text`` was given; empty: none, or a release before 0.2 wrote it."""
    options = (schema_of(text).metadata or {}).get(_WRITTEN)
    return {} if options is None else dict(json.loads(options))


def changes_of(text: str) -> dict[str, str]:
    """As ``written_as``, of rows that are changes; empty: they are none."""
    options = written_as(text)
    return options if options.get("write") == "changes" else {}


def schema_of(text: str) -> pa.Schema:
    """Inverse of ``schema_text``."""
    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text)))
