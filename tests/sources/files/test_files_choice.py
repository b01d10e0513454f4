"""Which files a source takes, and in which order."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from abs_core.errors import ConfigError, OptionError, RefusedError, ReplayMismatchError
from abs_core.source import Limit
from abs_sources.files import FileOptions, FileSource, local
from abs_sources.files.local import LocalStore
from abs_sources.files.log import KEPT
from abs_sources.files.pattern import Pattern, literal
from tests.planted import planted
from tests.sources.files.fill import SCHEMA, TEXT, Folder, packed


def source_on(disk: Folder, **given: str) -> FileSource:
    options = {**disk.given, "fileformat": "text", **given}
    return FileSource(FileOptions.parse(options, streaming=True), TEXT)


def put(disk: Folder, name: str, second: int) -> None:
    """A file with one line, its name; changed last at this second."""
    disk.put(name, f"{name}\n".encode())
    os.utime(disk.path / name, (second, second))


def words(source: FileSource, start: str, end: str) -> list[str]:
    found: list[str] = []
    for split in source.splits(start, end):
        reader = source.open(split)
        while not reader.finished:
            batch = reader.read(0.1)
            found += [] if batch is None else batch.column(0).to_pylist()
        reader.close()
    return found


def epochs(source: FileSource, limit: Limit) -> list[list[str]]:
    """The words of each epoch, until there is nothing new."""
    found, place = [], source.initial()
    while (end := source.latest(place, limit)) != place:
        found.append(words(source, place, end))
        place = end
    return found


def test_the_oldest_come_first_and_then_the_names_decide(tmp_path: Path) -> None:
    disk = Folder(tmp_path)
    for name, second in (("c", 10), ("b", 20), ("a", 20), ("d", 5)):
        put(disk, name, second)
    assert epochs(source_on(disk), Limit(files=3)) == [["d", "c", "a"], ["b"]]


def test_the_newest_come_first_where_that_is_asked_for(tmp_path: Path) -> None:
    disk = Folder(tmp_path)
    for name, second in (("a", 10), ("b", 20), ("c", 30)):
        put(disk, name, second)
    source = source_on(disk, latestFirst="true")
    start = source.initial()
    newest = source.latest(start, Limit(files=1))
    put(disk, "d", 40)
    end = source.latest(newest, Limit(files=1))
    assert words(source, start, end) == ["c", "d"]


def test_a_file_that_appears_late_with_an_old_time_is_not_lost(tmp_path: Path) -> None:
    disk = Folder(tmp_path)
    put(disk, "new", 1000)
    source = source_on(disk)
    first = source.latest(source.initial(), Limit())
    put(disk, "old", 10)
    for later in (source, source_on(disk)):
        assert words(later, first, later.latest(first, Limit())) == ["old"]


def test_bytes_limit_an_epoch_and_a_big_file_is_taken_all_the_same(tmp_path: Path) -> None:
    disk = Folder(tmp_path)
    for number, name in enumerate(("aa", "a-long-name", "bb", "cc")):
        put(disk, name, number)
    assert epochs(source_on(disk), Limit(bytes=5)) == [["aa", "a-long-name"], ["bb", "cc"]]
    with pytest.raises(ConfigError, match="cannot limit an epoch by rows"):
        source_on(disk).latest(source_on(disk).initial(), Limit(rows=3))


@given(st.text("ab*?[]{},!^-\\ =", min_size=1, max_size=9))
def test_a_path_that_is_taken_literally_names_itself_and_nothing_else(name: str) -> None:
    pattern = Pattern.parse(f"/data/{literal(name)}")
    assert (pattern.root, pattern.levels) == (f"/data/{name}", ())


def test_hidden_and_unfinished_files_are_passed_over(tmp_path: Path) -> None:
    disk = Folder(tmp_path)
    for name in ("a", "_b", ".c", "d._COPYING_", "_metadata/e", "f=1"):
        put(disk, name, 1)
    assert epochs(source_on(disk), Limit()) == [["a", "f=1"]]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, ["top"]),
        ({"recursiveFileLookup": "true"}, ["one/a.x", "one/deep/b.y", "top", "two/c.x"]),
        ({"recursiveFileLookup": "true", "pathGlobFilter": "*.{x,z}"}, ["one/a.x", "two/c.x"]),
        ({"path": "*"}, ["one/a.x", "top", "two/c.x"]),
        ({"path": "{one,two}"}, ["one/a.x", "two/c.x"]),
        ({"path": "o?e/*", "recursiveFileLookup": "true"}, ["one/a.x", "one/deep/b.y"]),
        ({"path": "*/deep"}, ["one/deep/b.y"]),
        ({"path": "one/a.x"}, ["one/a.x"]),
        ({"path": "one/a.x", "pathGlobFilter": "*.y"}, []),
        ({"path": "one/a.x/*"}, []),
        ({"path": "[^o]*"}, ["top", "two/c.x"]),
        ({"path": "[!o]*"}, ["top", "two/c.x"]),
        ({"path": "[n-pz]*/[b^]*", "recursiveFileLookup": "true"}, []),
        ({"path": "t[a-ow]?", "pathGlobFilter": "[^z].x"}, ["two/c.x"]),
        ({"path": "{t{op,wo},none}"}, ["top", "two/c.x"]),
        ({"path": "_h*"}, ["_hidden/d.x"]),
        ({"path": "{.h,_h}*/*"}, ["_hidden/d.x"]),
        ({"path": "?h*"}, []),
        ({"path": "_h*", "recursiveFileLookup": "true"}, ["_hidden/d.x"]),
    ],
)
def test_a_path_names_a_folder_a_file_or_a_glob(
    given: Mapping[str, str], expected: list[str], tmp_path: Path
) -> None:
    disk = Folder(tmp_path)
    for name in ("top", "one/a.x", "one/deep/b.y", "two/c.x", "_hidden/d.x", "_hidden/_e/f.x"):
        put(disk, name, 1)
    path = str(disk.path / given["path"]) if "path" in given else str(disk.path)
    found = epochs(source_on(disk, **{**given, "path": path}), Limit())
    assert sorted(word for words_ in found for word in words_) == expected


class Going(Pattern):
    """The file of this name goes when its name is read already."""

    def wants(self, path: str) -> bool:
        if path == "goes":
            Path(self.root, path).unlink()
        return super().wants(path)


def test_a_file_that_goes_while_the_folder_is_listed_is_passed_over(tmp_path: Path) -> None:
    disk = Folder(tmp_path)
    for name in ("goes", "stays"):
        put(disk, name, 1)
    options = FileOptions.parse({**disk.given, "fileformat": "text"}, streaming=True)
    store = LocalStore(Going(str(disk.path)))
    assert epochs(FileSource(options, TEXT, store), Limit()) == [["stays"]]


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (r"in\[1\]", ["in[1]/a"]),
        (r"i?\[*", ["in[1]/a", "in[^/a"]),
        (r"in[\[^][1^]*", ["in[1]/a", "in[^/a"]),
        (r"in[\]2]", ["in2/a"]),
        (r"in[9-1]", []),
        (r"a\*", ["a*/a"]),
        (r"{a\,b,a\*}", ["a*/a", "a,b/a"]),
        ("in[1", []),
        (r"back\slash", [r"back\slash/a"]),
    ],
)
def test_signs_of_globs_can_be_a_part_of_names(
    path: str, expected: list[str], tmp_path: Path
) -> None:
    disk = Folder(tmp_path)
    for name in ("in[1]", "in2", "in[^", "a*", "ab", "a,b", r"back\slash"):
        put(disk, f"{name}/a", 1)
    found = epochs(source_on(disk, path=f"{disk.path}/{path}"), Limit())
    assert sorted(word for words_ in found for word in words_) == expected


def test_a_slash_in_braces_is_refused_as_it_would_match_nothing(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="without a slash in braces"):
        source_on(Folder(tmp_path), path=f"{tmp_path}/{{2025/12,2026/01}}")


def test_a_pipe_is_no_file_and_is_not_waited_for(tmp_path: Path) -> None:
    disk = Folder(tmp_path)
    put(disk, "a", 1)
    os.mkfifo(disk.path / "b")
    assert epochs(source_on(disk), Limit()) == [["a"]]


def test_a_start_whose_files_the_log_has_forgotten_will_do_where_nothing_is_limited(
    tmp_path: Path,
) -> None:
    disk = Folder(tmp_path)
    source = source_on(disk)
    place = source.initial()
    for number in range(2 * KEPT + 2):
        put(disk, f"{number:04d}", number)
        place = source.latest(place, Limit())
        source.committed(place)
    anew = source_on(disk)  # Spark 4.1 asks a new process for the end, and tells no start
    assert anew.latest(anew.initial(), Limit()) == place
    with pytest.raises(ReplayMismatchError, match="but 0 to"):
        anew.latest(anew.initial(), Limit(files=1))


def test_folders_of_a_partitioned_data_set_are_looked_into(tmp_path: Path) -> None:
    disk = Folder(tmp_path)
    for name in ("day=1/a", "day=1/hour=2/b", "day=1/deep/no", "_x=1/c", "top/no"):
        put(disk, name, 1)
    assert epochs(source_on(disk), Limit()) == [["_x=1/c", "day=1/a", "day=1/hour=2/b"]]
    by_glob = source_on(disk, path=f"{disk.path}/day=*", log=f"{tmp_path}/other")
    assert epochs(by_glob, Limit()) == [["day=1/a", "day=1/hour=2/b"]]


def test_a_missing_folder_is_an_error_and_not_an_empty_source(tmp_path: Path) -> None:
    source = source_on(Folder(tmp_path), path=str(tmp_path / "nowhere"))
    with pytest.raises(RefusedError, match="There is no folder or file"):
        source.latest(source.initial(), Limit())


def test_a_file_that_changed_after_it_was_taken_is_told_when_files_are_looked_for(
    tmp_path: Path,
) -> None:
    disk = Folder(tmp_path)
    put(disk, "a", 1)
    source = source_on(disk)
    first = source.latest(source.initial(), Limit())
    put(disk, "a", 2)
    put(disk, "b", 3)
    with pytest.raises(ReplayMismatchError, match="has changed since it was taken"):
        source.latest(first, Limit())
    lenient = source_on(disk, changedFiles="ignore")
    assert words(lenient, first, lenient.latest(first, Limit())) == ["b"]
    with pytest.raises(ReplayMismatchError):  # to read it is an error all the same
        words(lenient, lenient.initial(), first)


def test_a_pattern_enters_only_folders_that_can_hold_what_it_names() -> None:
    pattern = Pattern.parse("/data/2026-*/in")
    assert pattern.root == "/data"
    assert [pattern.enters(f) for f in ("2026-01", "2026-01/in", "2026-01/out", "2025-01")] == [
        True, True, False, False,
    ]  # fmt: skip
    assert not pattern.enters("2026-01/in/deeper")
    assert pattern.enters("2026-01/in/day=1")


def test_all_that_is_wrong_with_the_options_is_told_at_once(tmp_path: Path) -> None:
    given = {
        "path": "hdfs://host/data",
        "fileformat": "parkuet",
        "maxFilesPerTriger": "1",
        "sep": "ab",
        "secretKey": "very-secret",
        "mode": "PERMISSIVE",
    }
    with pytest.raises(OptionError) as raised:
        FileOptions.parse(given, streaming=True)
    text = str(raised.value)
    assert "very-secret" not in text
    for part in (
        "hdfs://host/data is not a location", "did you mean parquet", "maxFilesPerTrigger",
        "one character", "boto3's chain", "a record that cannot be read is always an error",
    ):  # fmt: skip
        assert part in text, part
    with pytest.raises(OptionError, match="needs the option log"):
        FileOptions.parse({"path": str(tmp_path)}, streaming=True)
    beside = FileOptions.parse(
        {"path": "/data", "checkpointlocation": "s3a://bucket/c/"}, streaming=True
    )
    assert beside.log is not None
    assert beside.log.name == "s3://bucket/c/abs-files"


def looks(disk: Folder, **given: str) -> list[str]:
    """The words of the files that a source finds."""
    found = epochs(source_on(disk, recursiveFileLookup="true", **given), Limit())
    return sorted(word for words_ in found for word in words_)


@pytest.mark.parametrize("name", ["link", "long" * 50])
@pytest.mark.parametrize("target", [".", "..", "itself"])
def test_a_link_that_leads_in_a_circle_is_named_and_can_be_removed(
    name: str, target: str, tmp_path: Path
) -> None:
    """Forty times a long name are too long a name before the system sees the circle."""
    disk = Folder(tmp_path)
    put(disk, "sub/a", 1)
    link = disk.path / "sub" / name
    link.symlink_to(name if target == "itself" else target)
    with pytest.raises(RefusedError, match=f"sub/{name}[.] ") as error:
        looks(disk)
    assert error.value.remedy.startswith("remove the symbolic link")
    link.unlink()
    assert looks(disk) == ["sub/a"]


def test_planted_a_circle_that_is_gone_round_until_its_name_is_too_long_is_found(
    tmp_path: Path,
) -> None:
    with planted((local, "_check_circle", lambda link, above: None)):
        test_a_link_that_leads_in_a_circle_is_named_and_can_be_removed("long" * 50, "..", tmp_path)


def test_a_link_that_leads_in_a_circle_where_no_file_is_looked_for_is_passed_over(
    tmp_path: Path,
) -> None:
    disk = Folder(tmp_path)
    put(disk, "sub/a", 1)
    for name in ("_hidden", ".loop", "sub/_hidden"):
        (disk.path / name).symlink_to(disk.path / name)
    assert looks(disk) == ["sub/a"]


@pytest.mark.parametrize("instead", ["nothing", "a folder", "a file for its folder"])
@pytest.mark.parametrize("schema", [SCHEMA, None], ids=["given", "of the files"])
def test_a_file_that_is_gone_is_told_as_gone_whatever_is_there_instead(
    schema: pa.Schema | None, instead: str, tmp_path: Path
) -> None:
    disk = Folder(tmp_path)
    disk.put("k=1/a", packed([1], "parquet"))

    def source() -> FileSource:
        return FileSource(FileOptions.parse(disk.given, streaming=True), schema)

    planning = source()
    start = planning.initial()
    (split,) = planning.splits(start, planning.latest(start, Limit()))
    disk.delete("k=1/a")
    if instead == "a folder":
        disk.put("k=1/a/b", b"")
    elif instead == "a file for its folder":
        (disk.path / "k=1").rmdir()
        (disk.path / "k=1").write_text("")
    with pytest.raises(ReplayMismatchError, match=r"k=1/a .* is gone now"):
        source().open(split).read(1.0)


def test_a_folder_that_two_links_name_is_read_by_both(tmp_path: Path) -> None:
    disk = Folder(tmp_path)
    put(disk, "sub/a", 1)
    for name in ("one", "two"):
        (disk.path / name).symlink_to("sub")
    assert looks(disk) == ["sub/a"] * 3
