"""Keys of a bucket are kept as they are listed, also with empty folder names (``a//b``).

The servers of the other tests merge slashes, and Amazon's does not; so a dictionary of keys stands in
for the server here.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

import pyarrow as pa
import pytest

from abs_clients.s3.objects import Head, Listed
from abs_core.errors import RefusedError, ReplayMismatchError
from abs_core.source import Limit
from abs_sources.files import FileOptions, FileSource
from abs_sources.files import s3 as files_on_s3
from abs_sources.files import source as files_source
from abs_sources.files.model import Found
from abs_sources.files.s3 import S3Store
from tests.planted import planted
from tests.sources.files.fill import packed

ID = pa.schema([("id", pa.int64())])
AT = datetime(2026, 1, 2, tzinfo=UTC)


class Keys(dict[str, bytes]):
    """Objects by key, as a server keeps them that does not change keys."""

    def __call__(self, bucket: object) -> Keys:
        return self

    def list(self, prefix: str) -> Iterator[Listed]:
        for key in sorted(self):
            if key.startswith(prefix):
                yield Listed(key, len(self[key]), self._etag(key), AT)

    def head(self, key: str) -> Head | None:
        return Head(len(self[key]), self._etag(key), None, {}) if key in self else None

    def get_range(self, key: str, start: int, end: int, etag: str) -> bytes | None:
        return self[key][start:end] if key in self and self._etag(key) == etag else None

    def _etag(self, key: str) -> str:
        return f"etag {hash(self[key])}"


@pytest.fixture
def keys(monkeypatch: pytest.MonkeyPatch) -> Keys:
    made = Keys()
    monkeypatch.setattr(files_on_s3, "Objects", made)
    return made


def source(path: str, schema: pa.Schema | None = ID, **given: str) -> FileSource:
    options = {"path": f"s3://bucket/{path}", "fileformat": "json", **given}
    return FileSource(FileOptions.parse(options, streaming=False), schema)


def rows(of: FileSource, start: str) -> tuple[list[int], str]:
    end, found = of.latest(start, Limit()), []
    for split in of.splits(start, end):
        reader = of.open(split)
        while (batch := reader.read(1.0)) is not None:
            found += batch["id"].to_pylist()
        reader.close()
    return sorted(found), end


def line(number: int) -> bytes:
    return b'{"id":%d}\n' % number


PLACES = {
    "below the path": ("a", {}, {"a//1": 1, "a/2": 2, "a///3": 3}, [1, 2, 3]),
    "of one name": ("a", {}, {"a/x": 1, "a//x": 2}, [1, 2]),
    "at the bucket's root": ("", {}, {"/1": 1, "2": 2}, [1, 2]),
    "in a folder of a column": ("a", {}, {"a/k=1//x": 1, "a/k=1/x": 2}, [1, 2]),
    "in another folder": ("a", {}, {"a/b//x": 1, "a/x": 2}, [2]),
    "at any depth": ("a", {"recursiveFileLookup": "true"}, {"a/b//x": 1, "a//b/x": 2}, [1, 2]),
    "hidden": ("a", {}, {"a//_x": 1, "a//.x": 2, "a//x": 3}, [3]),
    "for a glob": ("a*/x", {}, {"a1//x": 1, "a2/x": 2, "a1/y": 3}, [1, 2]),
    "in the path itself": ("a//b", {}, {"a//b/x": 1, "a/b/x": 2}, [1]),
    "of a file": ("a//x", {}, {"a//x": 1, "a/x": 2}, [1]),
}


@pytest.mark.parametrize(("path", "given", "there", "expected"), PLACES.values(), ids=PLACES)
def test_each_object_is_read_by_the_key_that_it_has(
    path: str, given: dict[str, str], there: dict[str, int], expected: list[int], keys: Keys
) -> None:
    keys.update({key: line(number) for key, number in there.items()})
    made = source(path, **given)
    assert rows(made, made.initial())[0] == expected


def test_a_later_object_whose_key_differs_in_slashes_alone_is_a_new_file(keys: Keys) -> None:
    keys["a/x"] = line(1)
    made = source("a", changedFiles="ignore")
    _, taken = rows(made, made.initial())
    keys["a//x"] = line(2)
    assert rows(made, taken)[0] == [2]


def test_the_check_finds_keys_whose_slashes_are_stripped(keys: Keys) -> None:
    """A planted defect: what the listing did before."""
    listed = S3Store._list

    def stripped(self: S3Store, prefix: str) -> Iterator[Found]:
        for found in listed(self, prefix):
            yield found._replace(pin=found.pin._replace(path=found.pin.path.lstrip("/")))

    keys.update({"a//x": line(1)})
    made = source("a")
    with planted((S3Store, "_list", stripped), by=ReplayMismatchError, match="gone"):
        rows(made, made.initial())


MARKERS = ("a/", "a/b/", "a_$folder$", "a/b_$folder$", "a/k=1_$folder$", "a/k=1/c_$folder$")


@pytest.mark.parametrize("path", ["a", "a*"])
def test_objects_that_stand_for_folders_are_no_files(path: str, keys: Keys) -> None:
    keys.update(dict.fromkeys(MARKERS, b""))
    keys.update({"a/x": line(1), "a/k=1/x": line(2)})
    made = source(path, recursiveFileLookup="true")
    assert sorted(found.pin.path[-1] for found in made._store.find()) == ["x", "x"]
    assert rows(made, made.initial())[0] == [1, 2]
    with planted((files_on_s3, "FOLDER_MARKERS", "/")):
        assert sorted(found.pin.path[-1] for found in made._store.find()) == ["x", "x"]


def test_a_prefix_that_has_nothing_is_an_error_for_a_batch_and_awaited_by_a_stream(
    keys: Keys,
) -> None:
    keys["b/x"] = line(1)
    for path in ("a", "a/*", "b/x/*/y"):
        made = source(path)
        with pytest.raises(RefusedError, match="There is nothing below"):
            rows(made, made.initial())
    keys["a/_hidden"] = line(1)
    made = source("a")
    assert rows(made, made.initial())[0] == []
    given = {"path": "s3://bucket/c", "fileformat": "json", "log": "/nowhere"}
    assert FileOptions.parse(given, streaming=True).store().find() == []


@pytest.mark.parametrize("schema", [ID, None], ids=["given", "of the files"])
def test_files_that_are_all_gone_are_told_as_gone_though_there_is_nothing_to_list(
    schema: pa.Schema | None, keys: Keys
) -> None:
    keys["a/x"] = packed([1], "parquet")
    planning = source("a", schema, fileformat="parquet")
    start = planning.initial()
    (split,) = planning.splits(start, planning.latest(start, Limit()))
    keys.clear()
    with pytest.raises(ReplayMismatchError, match=r"s3://bucket/a/x .* is gone now"):
        source("a", schema, fileformat="parquet").open(split).read(1.0)


def test_planted_a_schema_that_is_looked_for_first_is_found(keys: Keys) -> None:
    with planted((files_source, "check_first", lambda store, split: None), by=RefusedError):
        test_files_that_are_all_gone_are_told_as_gone_though_there_is_nothing_to_list(None, keys)
