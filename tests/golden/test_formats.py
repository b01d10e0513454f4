"""Each durable format that ``make.py`` does not write: its golden file is written byte by byte.

And it reads it back, and refuses a newer version by name. A change that fails here changes what lies
in the registers and checkpoints of those who use this release. It takes a new version or a new field,
and a file of its own beside the older one, which must still be read.

    python -m tests.golden.test_formats    # writes the files that are not there yet
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import astuple, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from unittest.mock import patch

import pyarrow as pa
import pytest

from abs_clients.kafka.attempts import BEGINNING, NO_DECISION, Decided
from abs_core import certificate, codec, model, release
from abs_core.births.parent import parent_key
from abs_core.births.rules import Failed
from abs_core.certificate import Certificate
from abs_core.codec import (
    committable_from_json,
    committable_to_json,
    state_from_text,
    state_to_text,
)
from abs_core.errors import CorruptionError, SchemaError
from abs_core.model import (
    Committable,
    Dead,
    JobState,
    NamedSink,
    NotedToken,
    Recent,
)
from abs_core.rowdigest import RowDigest, is_row_digest, read_row_digest
from abs_sinks.deadletters.letter import (
    LETTERS,
    Shown,
    dead_letters,
    schema_of,
    schema_text,
    written_as,
)
from abs_sinks.deadletters.row import rows_of
from abs_sinks.kafka.ledger import LedgerPlace
from abs_sinks.kafka.letters import letter_records
from abs_sinks.kafka.mark import Ends, Topics
from abs_sinks.kafka.places import with_ids
from abs_sinks.kafka.records import COLUMNS, SEGMENT, plan_columns
from abs_sinks.kafka.register.topic import StoredCells, records_of
from abs_sinks.kafka.side_topic import Birth
from abs_sinks.postgres.prepared import proof_noted
from abs_sinks.postgres.relations import noting
from abs_sinks.s3.manifests import CommittedFile, manifest_from_bytes, manifest_to_bytes
from abs_sinks.s3.register import RegisterObject
from abs_sinks.s3.uploads import Upload, uploads_from_text, uploads_to_text
from abs_spark.checkpoint import failures
from tests.golden.make import JOB, REGISTER, full_state, handle

FOLDER = Path(__file__).parent / "formats"
HERE = "the golden file"
DIGEST = RowDigest(2**64 - 1, (("amount", 17), ("größe", 2**63), ("id", 0)))
AT = "2026-11-23T12:00:00+00:00"
RELEASE = "0.2.0"
"""Records of it name the release that wrote them; those before it did not."""


@dataclass(frozen=True, slots=True)
class Format:
    """A value of a format, and today's way to write and to read it."""

    value: object
    write: Callable[[], bytes]
    read: Callable[[bytes], object]

    def written(self) -> bytes:
        """As the release ``RELEASE`` writes it."""
        with patch.object(codec, "RELEASE", RELEASE):
            return self.write()


def _named(value: JobState) -> JobState:
    """The state, with decided handles that ``RELEASE`` made; one is of a release before it."""
    (decision, *others) = value.open
    first, *rest = decision.committables
    made = (replace(first, release=""), *(replace(each, release=RELEASE) for each in rest))
    return replace(value, open=(replace(decision, committables=made), *others))


def _state(value: JobState) -> Format:
    return Format(
        value,
        lambda: state_to_text(value).encode(),
        lambda content: state_from_text(content.decode(), HERE),
    )


def _certificate(value: Certificate) -> Format:
    return Format(
        value,
        lambda: certificate.to_text(value).encode(),
        lambda content: certificate.from_text(content, HERE),
    )


def _failed(value: Failed) -> Format:
    return Format(
        value,
        lambda: failures.to_bytes(JOB, value),
        lambda content: failures.from_bytes(content, HERE, JOB),
    )


def _side_topic(value: Birth) -> Format:
    return Format(
        value,
        lambda: value.to_text().encode(),
        lambda content: Birth.from_text("orders", content.decode()),
    )


def _marker(value: tuple[Upload, ...]) -> Format:
    return Format(value, lambda: uploads_to_text(value).encode(), uploads_from_text)


def _kafka_mark(value: Topics) -> Format:
    return Format(value, lambda: value.to_text().encode(), lambda data: Topics.read(data.decode()))


def _winners(value: Decided) -> Format:
    return Format(value, value.to_bytes, Decided.from_bytes)


def _committable(value: Committable) -> Format:
    return Format(
        value,
        lambda: json.dumps(committable_to_json(value), sort_keys=True).encode(),
        lambda content: committable_from_json(json.loads(content)),
    )


def _kafka_cell(value: JobState) -> Format:
    """One record for each line: the key, a tab, the value."""

    def write() -> bytes:
        records = records_of(JOB, "17-00112233aabbccdd", state_to_text(value), 700)
        return b"\n".join(key + b"\t" + (text or b"") for key, text in records)

    def read(content: bytes) -> JobState:
        cells = StoredCells()
        for line in content.split(b"\n"):
            key, text = line.split(b"\t")
            cells.apply(key, text)
        cell = cells.get(JOB, HERE)
        assert cell is not None
        return state_from_text(cell.text, HERE)

    return Format(value, write, read)


def _manifest(value: list[CommittedFile]) -> Format:
    return Format(
        value,
        lambda: manifest_to_bytes(value),
        lambda content: manifest_from_bytes(content, HERE),
    )


def _s3_cell(value: RegisterObject) -> Format:
    return Format(value, value.to_bytes, lambda content: RegisterObject.from_bytes(content, HERE))


_CERTIFICATE = Certificate(JOB, REGISTER, "s3://bucket/out/_abs/register", 3, 6, 7)
_RECENT = (Recent(6, DIGEST.brief.to_text(), 12), Recent(7, DIGEST.to_text(), 25))
_CHECKPOINT = replace(full_state(), checkpoint="file://host/checkpoints/orders", recent=_RECENT)
_DEAD = replace(_CHECKPOINT, recent=(_RECENT[0], replace(_RECENT[1], dead=(Dead(0, 25, 3),))))
_SHOWN = replace(
    _CHECKPOINT,
    recent=(
        replace(_RECENT[0], shown=(model.Shown(0, 12, '{"markers": [3, 6, 1, "abs"]}'),)),
        replace(
            _RECENT[1],
            shown=(model.Shown(0, 20, "größe"), model.Shown(2, 5, '{"topics":{"t":["id",7]}}')),
        ),
    ),
)
_COURSE = replace(
    _SHOWN,
    recent=(
        replace(_SHOWN.recent[0], course=model.Course(None, 1_795_000_000_000, None, ())),
        replace(
            _SHOWN.recent[1],
            course=model.Course(1_795_000_001_000, 1_795_000_002_000, 1_795_000_002_500, (0, 2)),
        ),
    ),
    older=(Recent(3, None, 7, shown=(model.Shown(1, 7, "before"),)),),
)
_FULL = replace(
    _SHOWN,
    recent=(
        _SHOWN.recent[0],
        replace(_SHOWN.recent[1], shown=(replace(_SHOWN.recent[1].shown[0], full="all"),)),
    ),
)
_SINKS = replace(
    _CHECKPOINT,
    target="sinks:3",
    sinks=(
        NamedSink(0, "payments", "postgresql:7301234567890123456/orders/public.payments", 0),
        NamedSink(1, "alerts", "kafka:cluster/alerts", 0, 5),
        NamedSink(2, "items", "s3://bucket/items", 6),
    ),
)
_TOKENS = (NotedToken("2026-11-22", REGISTER, 1, AT), NotedToken("t%20w", "f" * 16, 2, AT))
_PARENT = JobState("ab" * 8, parent_key(JOB), "target", "tokens", 1, "tokens", tokens=_TOKENS)
_UPLOADS = (
    Upload("out/a.parquet", "2~upl", 12, "00ff" * 4, ("e1", "e2"), ("1" * 16, "2" * 16)),
    Upload("out/b.parquet", "up", 5, "0" * 16, ("e1",)),
)
_WINNERS = (handle(7, 0), handle(7, 3))

_SEGMENT = Committable(
    handle(7, 4), 4, "xxh3_128:" + "1" * 32, (("length", "640"), ("protocol", "wal")), release=""
)
_LEDGER = LedgerPlace("abs-register", "0f8fad5b-d9cb-469f-a165-70867728950e")

FORMATS = {
    "failed.json": _failed(Failed(7)),
    "failed-partly.json": _failed(Failed(7, partly=True)),
    "committable-kafka-wal.json": _committable(_LEDGER.noted(_SEGMENT)),
    "committable-kafka-wal-log.json": _committable(
        replace(_LEDGER, log="s3://b/wal").noted(_SEGMENT)
    ),
    "committable-kafka-places.json": _committable(
        with_ids(
            replace(_SEGMENT, extra=(("frontier", "6"),)),
            {"t": "a-topic-id"},
        )
    ),
    "committable-postgres-tables.json": _committable(
        Committable(
            handle(7, 0),
            3,
            "xxh3_64:" + "01" * 8,
            (*proof_noted(None), *noting([('"public"."orders"', 16432)])),
            release="",
        )
    ),
    "committable-postgres-elsewhere.json": _committable(
        Committable(handle(7, 0), 3, "xxh3_64:" + "01" * 8, proof_noted("abs_orders"), release="")
    ),
    "certificate.json": _certificate(_CERTIFICATE),
    "certificate-first.json": _certificate(replace(_CERTIFICATE, frontier=None, deciding=0)),
    "state-checkpoint.json": _state(_CHECKPOINT),
    "state-dead.json": _state(_DEAD),
    "state-sinks.json": _state(_SINKS),
    "state-parent.json": _state(_PARENT),
    "kafka-cell-sinks.txt": _kafka_cell(_SINKS),
    "s3-cell-sinks.json": _s3_cell(
        RegisterObject(_SINKS, ("1-0-15-2-00112233aabbccdd",), "feedfacecafebeef")
    ),
    "manifest.json": _manifest([CommittedFile("out/a", 17, "00ff" * 4), CommittedFile("b", 0, "")]),
    "winners.json": _winners(Decided(REGISTER, JOB, 3, 7, _WINNERS, after=6)),
    "winners-first.json": _winners(Decided(REGISTER, JOB, 1, 0, (), after=BEGINNING)),
    "winners-given-up.json": _winners(Decided(REGISTER, JOB, 4, NO_DECISION, (), "by ann", 7)),
    "side-topic.json": _side_topic(Birth("topic-id", None)),
    "marker.json": _marker(_UPLOADS),
    "kafka-mark.json": _kafka_mark(Topics({"orders": Ends("id", (17, 0))}, before=True, more=3)),
    "kafka-mark-begins.json": _kafka_mark(
        Topics({"a": Ends("id", (17, 0))}, begins={("a", 0): 12, ("b", 3): 0})
    ),
    "kafka-mark-leaders.json": _kafka_mark(
        Topics({"a": Ends("id", (17, 0), leaders=(4, 5)), "b": Ends(None, (1, 2), leaders=(3, 3))})
    ),
}
OLDER = {n for n in FORMATS if n.startswith(("state-", "kafka-cell-", "s3-cell-"))}
"""Today's code writes one more field; the file beside it has it."""
FORMATS |= {
    "release-committable.json": _committable(replace(_SEGMENT, release=RELEASE)),
    "release-state.json": _state(_named(_CHECKPOINT)),
    "release-state-sinks.json": _state(_named(_SINKS)),
    "release-state-shown.json": _state(_named(_SHOWN)),
    "release-state-course.json": _state(_named(_COURSE)),
    "release-state-full.json": _state(_named(_FULL)),
    "release-state-parent.json": _state(_PARENT),
    "release-kafka-cell.txt": _kafka_cell(_named(_SINKS)),
    "release-s3-cell.json": _s3_cell(
        RegisterObject(_named(_SINKS), ("1-0-15-2-00112233aabbccdd",), "feedfacecafebeef")
    ),
}
_VERSIONED = sorted(name for name in FORMATS if not re.search(r"committable|kafka-cell|mark", name))


@pytest.mark.parametrize("name", sorted({*FORMATS} - OLDER))
def test_today_writes_a_format_as_its_golden_file_is(name: str) -> None:
    assert FORMATS[name].written() == (FOLDER / name).read_bytes()


@pytest.mark.parametrize("name", FORMATS)
def test_a_golden_file_is_read(name: str) -> None:
    assert FORMATS[name].read((FOLDER / name).read_bytes()) == FORMATS[name].value


@pytest.mark.parametrize("name", _VERSIONED)
def test_a_newer_version_is_refused_by_name(name: str) -> None:
    content = (FOLDER / name).read_bytes()
    newer, times = re.subn(rb'"(version|format)": ?[0-9]+', rb'"\1":98', content, count=1)
    assert times == 1
    with pytest.raises(CorruptionError, match=r"(version|format) 98, of a newer release.*newer"):
        FORMATS[name].read(newer)


def test_the_error_for_a_newer_version_names_the_release_that_wrote_it_and_this_one() -> None:
    newer = (FOLDER / "release-state.json").read_text().replace('"version":2', '"version":98')
    with pytest.raises(
        CorruptionError, match=f"98, of a newer release .'{RELEASE}'.*{release.RELEASE}"
    ):
        state_from_text(newer, HERE)


@pytest.mark.parametrize("name", ["release-state.json", "release-committable.json"])
def test_a_field_that_a_release_does_not_know_is_ignored(name: str) -> None:
    """So an older one reads what names its release; what it must not drop takes a new version."""
    content = (FOLDER / name).read_bytes()
    more = content.replace(b'"release"', b'"a new field": 1, "release"')
    assert more != content
    assert FORMATS[name].read(more) == FORMATS[name].value


def test_who_made_a_committable_stays_known_through_the_registers_of_others() -> None:
    """Each write of a register is this release's; what it holds was made by others."""
    state = state_from_text((FOLDER / "release-state.json").read_text(), HERE)
    again = state_from_text(state_to_text(state), HERE)
    made = [c.release for decision in again.open for c in decision.committables]
    assert made == ["", *[RELEASE] * (len(made) - 1)]
    assert f'"release":"{release.RELEASE}"' in state_to_text(state)


def test_a_newer_cell_in_kafka_is_refused_by_name() -> None:
    lines = (FOLDER / "kafka-cell-sinks.txt").read_bytes().split(b"\n")
    newer = [re.sub(rb'"format": ?[0-9]+', b'"format": 98', line) for line in lines]
    assert newer != lines
    with pytest.raises(CorruptionError, match=r"format 98, of a newer release"):
        FORMATS["kafka-cell-sinks.txt"].read(b"\n".join(newer))


def test_a_committable_says_where_its_ledger_lies_and_an_older_one_says_nothing() -> None:
    content = (FOLDER / "committable-kafka-wal.json").read_bytes()
    assert LedgerPlace.of(committable_from_json(json.loads(content))) == _LEDGER
    assert LedgerPlace.of(_SEGMENT) is None


def test_the_course_of_epochs_is_read_and_an_older_release_told_none() -> None:
    read = state_from_text((FOLDER / "release-state-course.json").read_text(), HERE)
    assert [each.course for each in read.recent] == [each.course for each in _COURSE.recent]
    older = state_from_text((FOLDER / "release-state-shown.json").read_text(), HERE)
    assert [each.course for each in older.recent] == [None, None]
    assert older.older == ()


def test_an_older_release_refuses_a_segment_with_dead_letters() -> None:
    """It would send them to the topic of the rows: it finds no column that it knows."""
    assert "|".join(SEGMENT.names) == (FOLDER / "kafka-segment-columns.txt").read_text().strip()
    assert not {name.lower() for name in SEGMENT.names} & set(COLUMNS)
    with pytest.raises(SchemaError, match="no column value"):
        plan_columns(SEGMENT, "orders")


def test_a_dead_letter_is_written_as_its_golden_file_is() -> None:
    rows = pa.record_batch({"id": pa.array([7]), "text": pa.array(["a\0b"])})
    why = [(0, "nul-character", "values hold a NUL", "text")]
    (letter,) = dead_letters(rows, why, Shown(("id",)))
    at = datetime(2026, 11, 23, 12, tzinfo=UTC)
    fields = (JOB, "orders", 7, at, *astuple(letter), schema_text(rows.schema))
    batch = pa.RecordBatch.from_pylist([dict(zip(LETTERS.names, fields, strict=True))], LETTERS)
    (text,) = letter_records(batch, "dead", 3).values.to_pylist()
    assert text == (FOLDER / "dead-letter.json").read_bytes().strip()
    read = json.loads(text)
    assert rows_of([read["row"]], schema_of(read["schema"])).equals(rows)


def test_a_dead_change_tells_its_options_as_its_golden_file_does() -> None:
    """Older releases read the schema, and drop what they do not know."""
    schema = pa.schema([("id", pa.int64()), ("at", pa.int64()), ("op", pa.string())])
    options = {
        "write": "changes",
        "sequenceby": "at",
        "positions": "side",
        "applyasdeletes": "op=d",
    }
    text = (FOLDER / "dead-change-schema.txt").read_text(encoding="ascii")
    assert schema_text(schema, options) == text
    assert written_as(text) == options
    assert schema_of(text).equals(schema)
    assert written_as(schema_text(schema)) == {}


def test_a_row_digest_is_written_and_read_as_its_golden_file_is() -> None:
    text = (FOLDER / "row-digest.txt").read_text(encoding="ascii")
    assert DIGEST.to_text() == text
    assert read_row_digest(text) == DIGEST


def test_a_row_digest_of_a_newer_kind_is_kept_and_never_compared() -> None:
    newer = DIGEST.to_text().replace("rows1:", "rows2:")
    assert not is_row_digest(newer)
    state = replace(full_state(), recent=(Recent(7, newer, 25),))
    assert state_from_text(state_to_text(state), HERE) == state


def test_a_side_topics_birth_of_a_release_that_did_not_number_it_is_read() -> None:
    older = '{"data": "topic-id", "side": null}'
    assert Birth.from_text("orders", older) == Birth("topic-id", None)


def test_a_format_without_a_version_is_refused() -> None:
    for name in _VERSIONED:
        if name == "side-topic.json":
            continue  # see above
        value = json.loads((FOLDER / name).read_bytes())
        del value["version" if "version" in value else "format"]
        with pytest.raises(CorruptionError, match=r"no field '(version|format)'"):
            FORMATS[name].read(json.dumps(value).encode())


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, written in {n: f.written() for n, f in FORMATS.items()}.items():
        if not (FOLDER / name).exists():
            (FOLDER / name).write_bytes(written)
    (FOLDER / "row-digest.txt").write_text(DIGEST.to_text(), encoding="ascii")
