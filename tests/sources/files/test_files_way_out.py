"""A file that cannot be read as it was taken: a person's consent gives it up, or pins it anew, once."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from abs_core.errors import AbsError, DataError, ReplayMismatchError
from abs_core.source import Limit
from abs_sources.files import FileOptions, FileSource
from abs_sources.files import log as logs
from abs_sources.files.log import SeenLog
from tests.planted import planted
from tests.sources.files.fill import SCHEMA, Folder, packed

FORMATS = ("parquet", "arrow", "csv", "json")
TEXTS = {"csv": b"x,word\n", "json": b'{"id": "x", "word": "w"}\n'}


def other(form: str) -> bytes:
    """A right file, whose rows do not have the schema's types."""
    if form in TEXTS:
        return TEXTS[form]
    sink = pa.BufferOutputStream()
    table = pa.table({"id": ["x"], "word": ["w"]})
    if form == "arrow":
        with pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
    else:
        pa.parquet.write_table(table, sink)
    content: bytes = sink.getvalue().to_pybytes()
    return content


def start(disk: Folder, form: str, **given: str) -> FileSource:
    """The source as a new start of the query has it."""
    options = {**disk.given, "fileformat": form, **given}
    return FileSource(FileOptions.parse(options, streaming=True), SCHEMA)


def ids(source: FileSource, begin: str, end: str) -> list[int]:
    found: list[int] = []
    for split in source.splits(begin, end):
        reader = source.open(split)
        try:
            while not reader.finished:
                batch = reader.read(0.1)
                found += [] if batch is None else batch["id"].to_pylist()
        finally:
            reader.close()
    return sorted(found)


def tokens(error: AbsError) -> list[str]:
    return re.findall(r"adopt=([0-9a-f]{12})", error.remedy)


def put(disk: Folder, name: str, content: bytes, second: int) -> None:
    disk.put(name, content)
    os.utime(disk.path / name, (second, second))


def consents(disk: Folder) -> list[dict[str, object]]:
    folder = Path(disk.given["log"])
    return [json.loads(path.read_bytes()) for path in sorted(folder.glob("consent-*"))]


def taken(disk: Folder, form: str, content: bytes) -> tuple[str, str, AbsError]:
    """An epoch of two files, the first of which is wrong: its range, and the error."""
    put(disk, "a", content, 10)
    put(disk, "b", packed([9], form), 20)
    source = start(disk, form)
    begin = source.initial()
    end = source.latest(begin, Limit())
    with pytest.raises((DataError, ReplayMismatchError)) as refused:
        ids(source, begin, end)
    return begin, end, refused.value


WRONG: dict[str, Callable[[str], bytes]] = {
    "damaged": lambda form: packed(range(20), form)[:-3] + b"\xff",
    "of another type": lambda form: other(form),
}


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
def test_a_file_that_cannot_be_read_is_given_up_by_consent_and_stays_so(
    form: str, wrong: Callable[[str], bytes], tmp_path: Path
) -> None:
    disk = Folder(tmp_path)
    begin, end, error = taken(disk, form, wrong(form))
    (token,) = tokens(error)
    assert ids(start(disk, form, adopt=token), begin, end) == [9]
    (kept,) = consents(disk)
    assert (kept["consent"], kept["file"][0], kept["now"]) == (token, "a", None)  # type: ignore[index]
    put(disk, "a", packed([1], form), 30)  # corrected too late: it stays out, and nothing fails
    disk.put("c", packed([3], form))
    for given in ({}, {"adopt": token}):  # a token that is left in the options does no more
        later = start(disk, form, **given)
        assert ids(later, begin, end) == [9]
        assert ids(later, end, later.latest(end, Limit())) == [3]
    assert len(consents(disk)) == 1


@pytest.mark.parametrize("form", FORMATS)
def test_each_step_that_an_error_names_leads_on(form: str, tmp_path: Path) -> None:
    disk = Folder(tmp_path)
    begin, end, error = taken(disk, form, WRONG["damaged"](form))
    assert "the next error names a token to read that" in error.remedy
    put(disk, "a", packed([1, 2], form), 30)
    with pytest.raises(ReplayMismatchError, match="has changed") as changed:
        ids(start(disk, form), begin, end)
    give_up, anew = tokens(changed.value)
    assert [give_up] == tokens(error)
    put(disk, "a", packed([1], form), 40)  # other content than the error saw: no consent to it
    with pytest.raises(ReplayMismatchError, match="has changed"):
        ids(start(disk, form, adopt=anew), begin, end)
    put(disk, "a", packed([1, 2], form), 30)
    assert ids(start(disk, form, adopt=anew), begin, end) == [1, 2, 9]
    assert ids(start(disk, form), begin, end) == [1, 2, 9]
    assert start(disk, form).latest(end, Limit()) == end
    disk.delete("a")
    with pytest.raises(ReplayMismatchError, match="is gone") as gone:
        ids(start(disk, form), begin, end)
    (last,) = tokens(gone.value)
    assert ids(start(disk, form, adopt=last), begin, end) == [9]
    assert [kept["consent"] for kept in consents(disk)] == [anew, last]
    kept = sorted(path.name for path in Path(disk.given["log"]).glob("consent-*"))
    assert kept == ["consent-000000000000-000000", "consent-000000000000-000001"]


def test_a_token_of_another_log_has_no_effect(tmp_path: Path) -> None:
    disk = Folder(tmp_path)
    _, _, error = taken(disk, "json", b"{")
    elsewhere = {**disk.given, "log": str(tmp_path / "other"), "fileformat": "json"}
    second = FileSource(
        FileOptions.parse({**elsewhere, "adopt": tokens(error)[0]}, streaming=True), SCHEMA
    )
    first = second.initial()
    with pytest.raises(DataError):
        ids(second, first, second.latest(first, Limit()))
    assert not consents(disk)


def test_a_file_that_changed_before_its_epoch_was_planned_is_pinned_anew_at_the_listing(
    tmp_path: Path,
) -> None:
    disk = Folder(tmp_path)
    put(disk, "a", packed([1], "json"), 10)
    begin = start(disk, "json").initial()
    start(disk, "json").latest(begin, Limit())  # the driver dies before the engine keeps this
    put(disk, "a", packed([2], "json"), 20)
    with pytest.raises(ReplayMismatchError) as changed:
        start(disk, "json").latest(begin, Limit())
    again = start(disk, "json", adopt=tokens(changed.value)[1])
    assert ids(again, begin, again.latest(begin, Limit())) == [2]


def test_a_change_of_a_committed_file_names_no_token(tmp_path: Path) -> None:
    disk = Folder(tmp_path)
    put(disk, "a", packed([1], "json"), 10)
    source = start(disk, "json")
    end = source.latest(source.initial(), Limit())
    put(disk, "a", packed([2], "json"), 20)
    with pytest.raises(ReplayMismatchError, match="changed") as changed:
        start(disk, "json").latest(end, Limit())
    assert not tokens(changed.value)
    assert "changedFiles=ignore" in changed.value.remedy


def test_a_consent_outlives_folds_and_forgotten_entries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "_FOLD_AFTER", 2)
    monkeypatch.setattr(logs, "KEPT", 1)
    disk = Folder(tmp_path)
    begin, end, error = taken(disk, "json", b"{")
    source = start(disk, "json", adopt=tokens(error)[0])
    assert ids(source, begin, end) == [9]
    for number in range(10, 16):
        disk.put(str(number), packed([number], "json"))
        begin, end = end, source.latest(end, Limit())
        assert ids(source, begin, end) == [number]
        source.committed(end)
    assert any(path.name.startswith("fold-") for path in Path(disk.given["log"]).iterdir())
    put(disk, "a", packed([1], "json"), 30)
    assert start(disk, "json").latest(end, Limit()) == end  # known, given up, and not new


def test_an_endless_reading_gives_up_the_rest_of_a_file(tmp_path: Path) -> None:
    disk = Folder(tmp_path)
    rows = b"".join(b'{"id": %d, "word": "w"}\n' % n for n in range(3))
    put(disk, "a", rows + b'{"id"', 10)
    options = FileOptions.parse({**disk.given, "fileformat": "json"}, streaming=True)
    options = replace(options, chunk=30, readers=1, poll_seconds=0.0)
    source = FileSource(options, SCHEMA)
    reader = source.open(source.splits(source.initial(), None)[0])
    found = [reader.read(0.1), reader.read(0.1)]
    assert [batch.num_rows for batch in found if batch is not None] == [1, 1]
    place = reader.position
    reader.close()
    reader = source.open(place)
    with pytest.raises(DataError) as first:
        _ = [reader.read(0.1) for _ in range(9)]
    reader.close()
    (token,) = tokens(first.value)
    assert "the rest of this file" in first.value.remedy
    disk.put("b", packed([9], "json"))
    again = FileSource(replace(options, adopt=frozenset({token})), SCHEMA)
    reader = again.open(place)
    read = [reader.read(0.1) for _ in range(9)]
    reader.close()
    assert [batch["id"].to_pylist() for batch in read if batch is not None] == [[9]]
    assert len(consents(disk)) == 1


def test_the_checks_find_a_consent_that_is_not_recorded(tmp_path: Path) -> None:
    """A planted defect: the file is left out of this start, and the log does not say so."""

    def forgetful(self: SeenLog, number: int, pin: object, now: object, token: str) -> None:
        self._consents[f"consent-{number:012d}-000000"] = now  # type: ignore[assignment]

    with planted((SeenLog, "settle", forgetful), by=(AssertionError, ValueError)):
        test_a_file_that_cannot_be_read_is_given_up_by_consent_and_stays_so(
            "json", WRONG["damaged"], tmp_path
        )
