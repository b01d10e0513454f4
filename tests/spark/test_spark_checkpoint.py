"""Reading Spark's checkpoint: every spelling of one place is that place; what is not there is None."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Timer

import pyarrow as pa
import pytest
from pyarrow import fs

from abs_core.certificate import UNREADABLE, Origin
from abs_core.errors import UnavailableError
from abs_core.model import Drained
from abs_core.patience import Patience
from abs_sinks.s3 import S3Options
from abs_sinks.s3.door import FORMAT
from abs_spark.checkpoint import ownfile, spark_files
from abs_spark.checkpoint.certificates import CheckpointCertificates
from abs_spark.checkpoint.left_out import records_in
from abs_spark.checkpoint.spark_files import fingerprint, is_readable, locate, query_id
from abs_spark.datasource.stream import EpochMessage, StreamWriter
from abs_spark.names import Announced, RunName
from abs_spark.sink_spec import SinkSpec

AT_ONCE = Patience(0.0)


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    folder = tmp_path / "a folder" / "ck"
    (folder / "offsets").mkdir(parents=True)
    (folder / "offsets" / "3").write_text('v1\n{"batchTimestampMs":1}\n{"logOffset":3}')
    (folder / "metadata").write_text('{"id":"0123-4567"}')
    return folder


def test_a_fingerprint_does_not_depend_on_how_the_place_is_spelled(checkpoint: Path) -> None:
    digest = fingerprint(str(checkpoint), 3)
    assert digest is not None
    assert digest.startswith("sha256:")
    for spelling in (
        f"file:{checkpoint}",
        f"file://{checkpoint}",
        f"FILE://localhost{checkpoint}/",
    ):
        assert fingerprint(spelling, 3) == digest
        assert query_id(spelling) == "0123-4567"


def test_another_input_has_another_fingerprint(checkpoint: Path) -> None:
    before = fingerprint(str(checkpoint), 3)
    (checkpoint / "offsets" / "3").write_text('v1\n{"batchTimestampMs":2}\n{"logOffset":3}')
    assert fingerprint(str(checkpoint), 3) not in (before, None)


@pytest.mark.parametrize(
    "place", [None, "", "/nowhere/at/all", "file:///nowhere", "nosuchscheme://host/path", "dbfs:/x"]
)
def test_what_cannot_be_read_is_none(place: str | None) -> None:
    assert fingerprint(place, 0) is None
    assert query_id(place) is None
    assert not is_readable(place)


def test_a_checkpoint_is_readable_once_spark_has_noted_the_query(checkpoint: Path) -> None:
    place = str(checkpoint)
    (checkpoint / "metadata").rename(checkpoint / "later")
    assert not is_readable(place)
    (checkpoint / "later").rename(checkpoint / "metadata")
    assert is_readable(place)


def _break(file: Path) -> None:
    """No read of it succeeds, and not because it is not there."""
    file.rename(file.with_name(f"{file.name}.aside"))
    file.symlink_to(file)


def _mend(file: Path) -> None:
    file.unlink()
    file.with_name(f"{file.name}.aside").rename(file)


def test_a_checkpoint_that_could_be_read_and_cannot_be_now_is_an_error(checkpoint: Path) -> None:
    """Or an epoch that comes again would be told by its row count, where its input tells it."""
    place = str(checkpoint)
    assert is_readable(place)
    _break(checkpoint / "offsets" / "3")
    with pytest.raises(UnavailableError, match="could be read before"):
        fingerprint(place, 3, AT_ONCE)
    _mend(checkpoint / "offsets" / "3")
    assert fingerprint(place, 3, AT_ONCE) is not None


def test_a_checkpoint_that_could_be_read_is_tried_for_as_long_as_patience_says(
    checkpoint: Path,
) -> None:
    digest = fingerprint(str(checkpoint), 3)
    assert is_readable(str(checkpoint))
    _break(checkpoint / "offsets" / "3")
    repair = Timer(0.2, _mend, [checkpoint / "offsets" / "3"])
    repair.start()
    assert fingerprint(str(checkpoint), 3, Patience(60.0)) == digest
    repair.join()


def test_a_file_that_is_not_there_in_a_checkpoint_that_is_read_is_none(checkpoint: Path) -> None:
    assert is_readable(str(checkpoint))
    assert fingerprint(str(checkpoint), 4, AT_ONCE) is None


def test_a_checkpoint_that_could_never_be_read_is_none(checkpoint: Path) -> None:
    _break(checkpoint / "offsets" / "3")
    _break(checkpoint / "metadata")
    assert fingerprint(str(checkpoint), 3, AT_ONCE) is None


def test_a_certificate_that_could_be_read_does_not_become_unreadable(
    checkpoint: Path,
) -> None:
    def fails(checkpoint: str) -> tuple[fs.FileSystem, str]:
        raise OSError(5, "Input/output error")

    @contextmanager
    def failing() -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            for module in (ownfile, spark_files):
                patch.setattr(module, "locate", fails)
            yield

    certificates = CheckpointCertificates(str(checkpoint))
    with failing():
        assert certificates.read() == UNREADABLE, "it was never read"
    assert certificates.read() == Origin()
    with failing(), pytest.raises(UnavailableError, match="could be read before"):
        certificates.read()
    assert certificates.read() == Origin()


def test_the_commit_process_takes_the_planners_word_that_the_checkpoint_is_readable(
    checkpoint: Path,
) -> None:
    _break(checkpoint / "offsets" / "3")
    given = {"path": "s3://bucket/x", "checkpointLocation": str(checkpoint), "patience": "1"}
    target = SinkSpec(FORMAT, S3Options.parse(given), pa.schema([("id", pa.int64())]))
    writer = StreamWriter(target, "start", None, Announced(), Origin(), None)
    name = RunName("job", "query", "run")
    told = EpochMessage(name, 3, Drained(1), started=False, announced=Announced(), readable=True)
    with pytest.raises(UnavailableError, match="could be read before"):
        writer.commit([told], 3)


def test_a_damaged_metadata_file_is_no_id(checkpoint: Path) -> None:
    for content in ("", "{}", "[]", "\x00"):
        (checkpoint / "metadata").write_text(content)
        assert query_id(str(checkpoint)) is None


def test_sparks_names_of_s3_are_arrows(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(
        "abs_spark.checkpoint.spark_files.fs",
        type("fs", (), {"FileSystem": _From(asked), "LocalFileSystem": fs.LocalFileSystem}),
    )
    locate("s3a://bucket/ck")
    locate("gs://bucket/ck")
    assert asked == ["s3://bucket/ck", "gs://bucket/ck"]


def test_databricks_own_file_system_is_read_where_it_is_mounted(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mount, volumes = tmp_path / "dbfs", checkpoint.parent
    (mount / "jobs").mkdir(parents=True)
    checkpoint.rename(mount / "jobs" / "ck")
    monkeypatch.setattr("abs_spark.checkpoint.spark_files.DBFS", mount)
    monkeypatch.setattr("abs_spark.checkpoint.spark_files.VOLUMES", volumes)
    locate.cache_clear()
    digest = fingerprint(str(mount / "jobs" / "ck"), 3)
    assert digest is not None
    for spelling in ("dbfs:/jobs/ck", "dbfs:///jobs/ck", "DBFS:/jobs/ck/"):
        assert fingerprint(spelling, 3) == digest
        assert query_id(spelling) == "0123-4567"
    (mount / "jobs" / "ck").rename(volumes / "ck")
    assert fingerprint(f"dbfs:{volumes}/ck", 3) == digest
    locate.cache_clear()


class _From:
    def __init__(self, asked: list[str]) -> None:
        self._asked = asked

    def from_uri(self, uri: str) -> tuple[None, str]:
        self._asked.append(uri)
        return None, uri


KAFKA = '{"t":{"0":%d,"1":%d}}'
OURS = '{"t":{"id":"a","offsets":{"0":%d}}}'


@pytest.mark.parametrize(
    ("before", "after", "records"),
    [
        ([KAFKA % (2, 5)], [KAFKA % (12, 6)], 11),
        ([OURS % 3], [OURS % 10], 7),
        ([KAFKA % (2, 5), OURS % 3], [KAFKA % (2, 6), OURS % 4], 2),
        (
            ['{"t":{"0":2}}'],
            [KAFKA % (4, 6)],
            8,
        ),  # a partition that is new: from its first record on
        (['{"logOffset":1}'], ['{"logOffset":9}'], None),  # files, not records
        ([KAFKA % (2, 5), '{"logOffset":1}'], [KAFKA % (4, 6), '{"logOffset":9}'], None),
        (["7"], ["9"], None),
        (["-"], [KAFKA % (4, 6)], None),
        (None, [KAFKA % (4, 6)], None),
        ([KAFKA % (2, 5)], None, None),
    ],
)
def test_records_of_epochs_are_told_where_offsets_tell_them(
    tmp_path: Path, before: list[str] | None, after: list[str] | None, records: int | None
) -> None:
    (tmp_path / "offsets").mkdir()
    for epoch, sources in ((2, before), (4, after)):
        if sources is not None:
            lines = "\n".join(["v1", '{"batchTimestampMs":1}', *sources])
            (tmp_path / "offsets" / str(epoch)).write_text(lines)
    assert records_in(str(tmp_path), 3, 4) == records


def test_records_of_the_first_epochs_are_those_from_the_beginning_on(checkpoint: Path) -> None:
    (checkpoint / "offsets" / "1").write_text("v1\n{}\n" + KAFKA % (4, 6))
    assert records_in(str(checkpoint), 0, 1) == 10
    assert records_in(None, 0, 1) is None
