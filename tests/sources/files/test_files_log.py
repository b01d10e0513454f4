"""The log of seen files: its order is one for all, it is folded, and a stale view does no harm."""

from __future__ import annotations

import random
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from abs_clients.s3.server import Bucket, Server
from abs_core.errors import CorruptionError, IdentityError, RefusedError, ReplayMismatchError
from abs_core.source import Limit
from abs_services import S3Service
from abs_sources.files import FileOptions, FileSource
from abs_sources.files import log as logs
from abs_sources.files.cells import WriteOnceFolder, WriteOnceMemory, WriteOnceStore
from abs_sources.files.log import KEPT, SeenLog, seen_as
from abs_sources.files.model import Pin
from abs_sources.files.s3 import WriteOnceBucket
from tests.sources.files.fill import TEXT, Folder, credentials
from tests.sources.files.test_files_choice import put, source_on, words


def pin(number: int) -> Pin:
    return Pin(f"file-{number:06d}", number, "s")


def grown(cells: WriteOnceStore, entries: int, *, commit: bool = True) -> SeenLog:
    """A log with two files an entry, as a query makes it that commits each."""
    log = SeenLog(cells, "/data")
    log.refresh()
    for number in range(entries):
        assert log.append([pin(2 * number), pin(2 * number + 1)])
        if commit:
            log.committed(log.total)
    return log


def test_what_is_in_the_log_is_numbered_for_ever() -> None:
    cells = WriteOnceMemory()
    grown(cells, 5)
    log = SeenLog(cells, "/data")
    log.refresh()
    assert log.total == 10
    assert log.files(3, 8) == [pin(n) for n in range(3, 8)]
    assert log.files(4, 4) == []
    assert dict(log.seen) == {pin(n).path: seen_as(pin(n)) for n in range(10)}


def test_a_long_log_is_folded_and_only_its_newer_entries_are_kept() -> None:
    cells = WriteOnceMemory()
    log = grown(cells, 6 * KEPT)
    names = sorted(cells.names())
    assert sum(name.startswith("fold-") for name in names) == 1
    assert KEPT <= sum(name.startswith("entry-") for name in names) <= 4 * KEPT
    anew = SeenLog(cells, "/data")
    anew.refresh()
    assert (anew.total, len(anew.seen)) == (12 * KEPT, 12 * KEPT)
    assert dict(anew.seen) == dict(log.seen)
    last = 12 * KEPT
    assert anew.files(last - KEPT, last) == [pin(n) for n in range(last - KEPT, last)]
    with pytest.raises(ReplayMismatchError, match="checkpoint is older or newer than the log"):
        anew.files(0, 10)


def test_what_is_not_committed_is_never_forgotten() -> None:
    cells = WriteOnceMemory()
    log = grown(cells, 3 * KEPT, commit=False)
    log.committed(7)
    assert any(name.startswith("fold-") for name in cells.names())
    anew = SeenLog(cells, "/data")
    anew.refresh()
    assert anew.files(7, log.total) == [pin(n) for n in range(7, log.total)]


def test_a_log_that_nobody_commits_is_folded_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "_FOLD_ANYWAY", 50)
    cells = WriteOnceMemory()
    grown(cells, 120, commit=False)
    assert any(name.startswith("fold-") for name in cells.names())


def test_an_append_that_comes_after_its_entry_was_folded_counts_for_nothing() -> None:
    """The stale process is given its place in the true order, and what it put is gone again."""
    cells = WriteOnceMemory()
    stale = grown(cells, 3)
    log = SeenLog(cells, "/data")
    log.refresh()
    for number in range(3, 5 * KEPT):
        assert log.append([pin(2 * number), pin(2 * number + 1)])
        log.committed(log.total)
    assert not any(name.startswith("entry-000000000003") for name in cells.names())
    assert not stale.append([pin(999_999)])
    assert stale.total == log.total
    assert not any(name.startswith("entry-000000000003") for name in cells.names())
    anew = SeenLog(cells, "/data")
    anew.refresh()
    assert dict(anew.seen) == dict(log.seen) == dict(stale.seen)


@pytest.mark.parametrize("kind", ["folder", "bucket"])
@pytest.mark.services
def test_of_writers_that_race_each_entry_has_one_and_no_file_is_taken_twice_or_lost(
    kind: str, tmp_path: Path, s3: S3Service, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in credentials(s3).items():
        monkeypatch.setenv(name, value)
    server = Server(s3.endpoint, s3.region, pathstyle=True)
    cells: WriteOnceStore = WriteOnceFolder(tmp_path / "log")
    if kind == "bucket":
        cells = WriteOnceBucket(Bucket(server, s3.bucket), f"{prefix}/log")
    pins = [pin(number) for number in range(60)]
    views = [SeenLog(cells, "/data") for _ in range(3)]

    def take(view: SeenLog, seed: int) -> None:
        chance = random.Random(seed)
        while True:
            view.refresh()
            new = [p for p in pins if p.path not in view.seen]
            if not new:
                return
            view.append(chance.sample(new, min(len(new), 4)))

    threads = [threading.Thread(target=take, args=(v, n)) for n, v in enumerate(views)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for view in views:
        view.refresh()
        assert sorted(view.files(0, view.total)) == pins
    assert views[0].files(0, 60) == views[1].files(0, 60) == views[2].files(0, 60)
    assert len({view.id for view in views}) == 1


def test_two_sources_that_look_at_once_take_each_file_once(tmp_path: Path) -> None:
    disk = Folder(tmp_path)
    for number in range(4):
        put(disk, f"{number}", number)
    first, second = source_on(disk), source_on(disk)
    start = first.initial()
    find = first._store.find

    class Slow:
        """While this one looks, the other one takes."""

        def find(self) -> object:
            found = find()
            second.latest(start, Limit(files=2))
            return found

    real, first._store = first._store, Slow()  # type: ignore[assignment]
    end = first.latest(start, Limit())
    first._store = real
    assert words(first, start, end) == ["0", "1", "2", "3"]
    assert words(second, start, second.latest(start, Limit())) == ["0", "1", "2", "3"]


def test_a_death_between_log_and_offset_loses_nothing_and_takes_nothing_twice(
    tmp_path: Path,
) -> None:
    disk = Folder(tmp_path)
    put(disk, "a", 1)
    start = source_on(disk).initial()
    lost = source_on(disk).latest(start, Limit())  # the process dies, the engine never learns of it
    put(disk, "b", 2)
    again = source_on(disk)
    one = again.latest(start, Limit(files=1))
    assert one == lost
    end = again.latest(one, Limit())
    assert words(again, start, one) + words(again, one, end) == ["a", "b"]


def test_offsets_stay_small_whatever_the_number_of_files(tmp_path: Path) -> None:
    disk = Folder(tmp_path)
    source = source_on(disk)
    start = source.initial()
    for number in range(300):
        (disk.path / f"{number:04d}").touch()
    end = source.latest(start, Limit())
    assert len(end) <= len(start) + 2


def test_another_log_or_another_root_is_told_and_not_taken_for_this_one(tmp_path: Path) -> None:
    disk, other = Folder(tmp_path / "one"), Folder(tmp_path / "two")
    put(disk, "a", 1)
    source = source_on(disk)
    start = source.initial()
    end = source.latest(start, Limit())
    with pytest.raises(IdentityError, match=", not to"):
        source_on(other, log=disk.given["log"]).initial()
    with pytest.raises(ReplayMismatchError, match="restore the log"):
        source_on(disk, log=str(tmp_path / "new")).splits(start, end)
    behind = end.replace('"files": 1', '"files": 9')
    with pytest.raises(ReplayMismatchError, match="the log is older than the checkpoint"):
        source_on(disk).latest(behind, Limit())


def test_a_damaged_log_is_told(tmp_path: Path) -> None:
    disk = Folder(tmp_path)
    put(disk, "a", 1)
    source = source_on(disk)
    start = source.initial()
    source.latest(start, Limit())
    (entry,) = (tmp_path / "log").glob("entry-*")
    entry.write_bytes(b"{")
    with pytest.raises(CorruptionError, match="is damaged"):
        source_on(disk).latest(start, Limit())
    entry.rename(entry.with_name("entry-000000000007-000000000000"))
    with pytest.raises(CorruptionError, match="is damaged"):
        source_on(disk).latest(start, Limit())


class Careless(WriteOnceMemory):
    """Lets the second writer win."""

    def put_new(self, name: str, content: bytes) -> bool:
        self.kept[name] = content
        return True


def test_a_place_that_lets_a_second_writer_win_is_refused() -> None:
    with pytest.raises(RefusedError, match="If-None-Match is not honoured"):
        _ = SeenLog(Careless(), "/data").id


def test_a_batch_needs_no_log_and_leaves_none(tmp_path: Path) -> None:
    disk = Folder(tmp_path)
    put(disk, "a", 1)
    options = FileOptions.parse({"path": disk.given["path"], "fileformat": "text"}, streaming=False)
    source = FileSource(options, TEXT)
    start = source.initial()
    assert words(source, start, source.latest(start, Limit())) == ["a"]
    assert [p.name for p in tmp_path.iterdir()] == ["input"]


def test_an_endless_reading_has_passed_what_all_of_its_shares_have(tmp_path: Path) -> None:
    disk = Folder(tmp_path)
    for number in range(6):
        put(disk, f"{number}", number)
    options = FileOptions.parse({**disk.given, "fileformat": "text"}, streaming=True)
    source = FileSource(replace(options, readers=2), TEXT)
    start = source.initial()
    readers = [source.open(split) for split in source.splits(start, None)]
    assert source.passed([reader.position for reader in readers]) == start
    while readers[0].read(0) is not None:
        pass
    assert source.passed([reader.position for reader in readers]) == start
    while readers[1].read(0) is not None:
        pass
    assert source.passed([reader.position for reader in readers]) == source.latest(start, Limit())
    assert source.passed([readers[0].position]) is None, "a share is missing"
    bounded = source.splits(start, source.latest(start, Limit()))
    assert source.passed(bounded) is None, "they end, and need no log"
