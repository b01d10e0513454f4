"""All that is kept between runs, and how the product reads it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pytest

from abs_clients.kafka.attempts import Decided
from abs_core import certificate
from abs_core.certificate import Certificate
from abs_core.codec import state_from_text, state_to_text
from abs_core.errors import AbsError
from abs_core.model import Committable, JobState
from abs_core.registers import FileRegister
from abs_core.source import Split
from abs_core.wal import FolderSegments, read_segment, verify
from abs_core.wal.contracts import name_of
from abs_embedded.snapshot import read_record
from abs_embedded.sources import SourceOperator
from abs_embedded.state.codecs import TEXT
from abs_embedded.state.local_store import LocalSnapshotStore
from abs_embedded.state.operator_state import OperatorList
from abs_embedded.tables import TableReader, TableSource
from abs_sinks.kafka.ledger import handles_in_ledger
from abs_sinks.kafka.open_transaction import OpenTransaction
from abs_sinks.kafka.register.topic import StoredCells, number_of
from abs_sinks.kafka.side_topic import Birth
from abs_sinks.s3.manifests import manifest_from_bytes, manifest_to_bytes
from abs_sinks.s3.register import RegisterObject
from abs_sinks.s3.uploads import uploads_from_text, uploads_to_text
from abs_sources.files.cells import WriteOnceMemory
from abs_sources.files.log import SeenLog
from abs_sources.files.readers import endless_places, log_of
from abs_sources.kafka.offsets import Range, TopicOffsets
from abs_spark.checkpoint.failures import FailedBatch
from abs_spark.checkpoint.spark_files import query_id
from tests.golden.make import JOB, committables, full_state, new_state

GOLDEN = Path(__file__).parents[1] / "golden" / "0.1.0"
EACH = 450
"""Cases of each reader; of those that go through a disk a third."""


@dataclass(frozen=True, slots=True)
class Kept:
    """Something that is kept, and how it is read.

    Args:
        content: as it was written.
        read: reads it as the product does, and what was read again where it was accepted.
        newer: the field that says its version, and what is said of a newer one.
        slow: it goes through a disk.
    """

    name: str
    content: bytes
    read: Callable[[bytes, Path], object]
    newer: tuple[str, ...] = ()
    slow: bool = False


def _state(content: bytes, _: Path) -> None:
    _again(state_from_text(_text(content), "here"))


def _again(state: JobState) -> None:
    assert state_from_text(state_to_text(state), "again") == state


def _text(content: bytes) -> str:
    """As a database's text gives it: bytes that are no UTF-8 do not get here."""
    return content.decode("utf-8", errors="replace")


def _file_register(content: bytes, folder: Path) -> None:
    path = folder / f"{JOB}.json"
    path.write_bytes(content)
    store = FileRegister(folder)
    try:
        stored = store.load(JOB)
    except AbsError:
        with pytest.raises(AbsError):
            store.compare_and_set(JOB, None, new_state())
        assert path.read_bytes() == content, "something was written"
        raise
    assert stored is not None
    _again(stored.state)


def _kafka_cell(content: bytes, _: Path) -> None:
    cells = StoredCells()
    for key, value in json.loads((GOLDEN / "kafka-cell-chunks.json").read_text())[:-1]:
        cells.apply(key.encode(), value.encode())
    cells.apply(JOB.encode(), content)
    cell = cells.get(JOB, "the register's topic")
    assert cell is not None
    assert number_of(cell.version) >= 0
    _again(state_from_text(cell.text, "there"))


def _s3_cell(content: bytes, _: Path) -> None:
    cell = RegisterObject.from_bytes(content, "s3://there")
    assert RegisterObject.from_bytes(cell.to_bytes(), "s3://there") == cell


def _manifest(content: bytes, _: Path) -> None:
    files = manifest_from_bytes(content, "s3://there")
    assert manifest_from_bytes(manifest_to_bytes(files), "s3://there") == files


def _winners(content: bytes, _: Path) -> None:
    decided = Decided.from_bytes(content)
    assert Decided.from_bytes(decided.to_bytes()) == decided


def _ledger(content: bytes, _: Path) -> None:
    handles_in_ledger(JOB, _text(content))


def _record(content: bytes, _: Path) -> None:
    record = read_record(content)
    written = replace(record, handles=tuple(committables().values())).to_bytes()
    assert read_record(written) == record


def _sealed_record(content: bytes, folder: Path) -> None:
    (folder / "complete").mkdir(exist_ok=True)
    (folder / "complete" / "5.record").write_bytes(content)
    read_record(LocalSnapshotStore(folder).record(5))


def _extra(cell: str, name: str) -> Callable[[bytes, Path], None]:
    def read(content: bytes, _: Path) -> None:
        committable = committables()[cell]
        extra = {**dict(committable.extra), name: _text(content)}
        changed = replace(committable, extra=tuple(sorted(extra.items())))
        if cell.startswith("kafka"):
            prepared = OpenTransaction.of(changed)
            assert prepared is None or prepared.epoch >= 0
        else:
            uploads_from_text(dict(changed.extra)["uploads"])

    return read


def read_as_segment(content: bytes, folder: Path) -> None:
    written = json.loads((GOLDEN / "segment-committables.json").read_text())["plain"]
    state = json.dumps(json.loads(state_to_text(full_state())) | {"open": [_decision(written)]})
    (decision,) = state_from_text(state, "here").open
    committable: Committable = decision.committables[0]
    (folder / name_of(committable.handle)).write_bytes(content)
    store = FolderSegments(folder)
    try:
        verify(store, committable.handle)
        pa.Table.from_batches(read_segment(store, committable))
    finally:
        assert (folder / name_of(committable.handle)).read_bytes() == content


def _decision(committable: object) -> dict[str, object]:
    return {"lineage": "l", "epoch": 7, "generation": 3, "committables": [committable]}


def _seal(content: bytes, folder: Path) -> None:
    """Only the seal is damaged; its length is right."""
    whole = (GOLDEN / "segment-plain.arrows").read_bytes()
    length = int.from_bytes(whole[-12:-8], "little")
    sealed = whole[: -12 - length] + content + len(content).to_bytes(4, "little") + whole[-8:]
    read_as_segment(sealed, folder)


class Anywhere(TableSource):
    """A source that opens any split."""

    def open(self, split: Split) -> TableReader:
        return TableReader(pa.table({"id": [1]}), Split("any", "0", "1"), 1)


def _position(content: bytes, _: Path) -> None:
    SourceOperator(Anywhere([]), OperatorList([content], TEXT)).close()


def _offsets(content: bytes, _: Path) -> None:
    place = TopicOffsets.parse(_text(content))
    assert TopicOffsets.parse(place.text).ids == place.ids


def _range(content: bytes, _: Path) -> None:
    Range.of(Split("orders-0", _text(content), '{"offset": 17}'))
    Range.of(Split("orders-0", '{"offset":1,"partition":0,"topic":"t","topic_id":"i"}', None))


def _range_end(content: bytes, _: Path) -> None:
    start = '{"offset":1,"partition":0,"topic":"t","topic_id":"i"}'
    Range.of(Split("orders-0", start, _text(content)))


def _endless(content: bytes, _: Path) -> None:
    split = Split("files", _text(content), None)
    log_of(split)
    endless_places([split])


def _log(name: str) -> Callable[[bytes, Path], None]:
    def read(content: bytes, _: Path) -> None:
        cells = WriteOnceMemory()
        for path in (GOLDEN / "files-log").iterdir():
            cells.put_new(path.name, content if path.name == name else path.read_bytes())
        log = SeenLog(cells, "/data/in")
        assert isinstance(log.id, str)
        log.refresh()
        log.files(2, 3)

    return read


def _metadata(content: bytes, folder: Path) -> None:
    (folder / "metadata").write_bytes(content)
    found = query_id(str(folder))
    assert found is None or isinstance(found, str)


def _certificate(content: bytes, _: Path) -> None:
    found = certificate.from_text(content, "there")
    assert certificate.from_text(certificate.to_text(found), "there") == found


def _side_topic(content: bytes, _: Path) -> None:
    birth = Birth.from_text("orders", _text(content))
    assert Birth.from_text("orders", birth.to_text()) == birth


def _marker(content: bytes, _: Path) -> None:
    uploads = uploads_from_text(content, "s3://there", "it")
    assert uploads_from_text(uploads_to_text(uploads)) == uploads


def _failed_batch(content: bytes, folder: Path) -> None:
    note = folder / "abs" / f"failed-{JOB}.json"
    note.parent.mkdir(exist_ok=True)
    note.write_bytes(content)
    try:
        FailedBatch(str(folder), JOB).read()
    finally:
        assert note.read_bytes() == content, "something was written"


def golden(name: str) -> bytes:
    return (GOLDEN / name).read_bytes()


def _all() -> Iterator[Kept]:
    full = replace(full_state(), checkpoint="file://host/checkpoint")
    state = state_to_text(full).encode()
    cell = json.dumps({"cell": "17-00", "format": 1, "state": state.decode()}).encode()
    chunked = json.loads(golden("kafka-cell-chunks.json"))[-1][1].encode()
    record = golden("snapshot-heap/complete/5.record")
    segment = golden("segment-plain.arrows")
    seal = segment[-12 - int.from_bytes(segment[-12:-8], "little") : -12]
    extra = {name: dict(c.extra) for name, c in committables().items()}
    yield Kept("state", state, _state, ("version",))
    yield Kept("state of 0.1.0", golden("state-full.json"), _state, ("version",))
    yield Kept("file register", golden("file-register.json"), _file_register, ("format",), True)
    yield Kept("kafka cell", cell, _kafka_cell, ("format",))
    yield Kept("kafka cell in parts", chunked, _kafka_cell, ("format",))
    yield Kept("kafka ledger", golden("kafka-ledger.json"), _ledger, ("format",))
    yield Kept("s3 cell", golden("s3-cell.json"), _s3_cell, ("format",))
    yield Kept("s3 manifest", golden("manifest.json"), _manifest, ("format",))
    yield Kept("winners record", golden("winners.json"), _winners, ("version",))
    yield Kept("completion record", record.partition(b"\n")[2], _record, ("version",))
    yield Kept("sealed completion record", record, _sealed_record, slow=True)
    yield Kept("s3 uploads", extra["s3-2pc"]["uploads"].encode(), _extra("s3-2pc", "uploads"))
    for name in ("producer_id", "epoch", "timeout_ms", "held_as"):
        content = extra["kafka-2pc"][name].encode()
        yield Kept(f"kafka transaction's {name}", content, _extra("kafka-2pc", name))
    yield Kept("segment", segment, read_as_segment, slow=True)
    yield Kept("seal of a segment", seal, _seal, slow=True)
    yield Kept("position of a source", b'["rows-0", "17", "90", 1234]', _position)
    yield Kept("offsets of the kafka source", golden("kafka-offsets.json"), _offsets)
    start = b'{"offset": 12, "partition": 0, "topic": "orders", "topic_id": "id"}'
    yield Kept("range of the kafka source", start, _range)
    yield Kept("end of a range of the kafka source", b'{"offset": 12}', _range_end)
    endless = b'{"at": [1, 2], "files": 3, "log": "id", "share": [0, 1]}'
    yield Kept("split of files without an end", endless, _endless)
    for name in ("log.json", "entry-000000000001-000000000002", "fold-000000000000"):
        newer = ("version",) if name == "log.json" else ()
        yield Kept(f"{name} of a files log", golden(f"files-log/{name}"), _log(name), newer)
    born = Certificate(JOB, "0123456789abcdef", "there", 3, 6, 7)
    text = certificate.to_text(born).encode()
    yield Kept("birth certificate", text, _certificate, ("version",))
    birth = (GOLDEN.parent / "formats" / "side-topic.json").read_bytes()
    yield Kept("birth of a side topic", birth, _side_topic, ("format",))
    yield Kept("marker in S3", extra["s3-2pc"]["uploads"].encode(), _marker)
    note = b'{"version": 1, "job": "orders", "epoch": 7}'
    yield Kept("note of a failed batch", note, _failed_batch, slow=True)
    yield Kept("spark's metadata", b'{"id": "5f2c1c1e"}', _metadata, slow=True)


ALL = list(_all())
