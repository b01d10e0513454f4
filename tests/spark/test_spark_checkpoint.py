"""Reading Spark's checkpoint: every spelling of one place is that place; what is not there is None."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyarrow import fs

from abs_spark.checkpoint import fingerprint, is_readable, locate, query_id


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


def test_a_damaged_metadata_file_is_no_id(checkpoint: Path) -> None:
    for content in ("", "{}", "[]", "\x00"):
        (checkpoint / "metadata").write_text(content)
        assert query_id(str(checkpoint)) is None


def test_sparks_names_of_s3_are_arrows(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(
        "abs_spark.checkpoint.fs",
        type("fs", (), {"FileSystem": _From(asked), "LocalFileSystem": fs.LocalFileSystem}),
    )
    locate("s3a://bucket/ck")
    locate("gs://bucket/ck")
    assert asked == ["s3://bucket/ck", "gs://bucket/ck"]


class _From:
    def __init__(self, asked: list[str]) -> None:
        self._asked = asked

    def from_uri(self, uri: str) -> tuple[None, str]:
        self._asked.append(uri)
        return None, uri
