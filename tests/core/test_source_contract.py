"""The checks of a source: a right one passes all, a broken one is found by the rule it breaks."""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from abs_core.source import Limit, Offsets, Reader, Source, Split
from abs_testing import SOURCE_CHECKS, check_source, run_source_check
from abs_testing.checks.sources import (
    a_reader_keeps_to_the_portions_that_it_is_asked_for as keeps_to_portions,
)
from abs_testing.checks.sources import closed_to_what_comes_it_comes_to_an_end as comes_to_an_end
from tests.kit import fake_source as fakes
from tests.kit.fake_source import FakeReader, FakeSource, Numbers, open_fake_source
from tests.planted import Bug, Plant, planted

_latest, _splits, _read, _at = FakeSource.latest, FakeSource.splits, FakeReader.read, Numbers.at


def test_a_right_source_passes_every_rule() -> None:
    assert check_source(open_fake_source) == [check.__name__ for check in SOURCE_CHECKS]


def test_a_source_with_nothing_but_what_it_must_have_passes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(FakeSource, "until_now", Source.until_now)
    monkeypatch.setattr(FakeReader, "at_most", Reader.at_most)
    for check in (comes_to_an_end, keeps_to_portions):
        run_source_check(open_fake_source, check)
    source = FakeSource(Path())
    left = [Split("left", "0", None)]
    assert (source.resumed(left), source.passed(left), source.seen()) == (left, None, None)


def _getter(name: str) -> Callable[[FakeReader], Any]:
    """What reads a property of the right reader."""
    read: Callable[[FakeReader], Any] = vars(FakeReader)[name].fget
    return read


def forgets_a_split(plant: Plant) -> None:
    plant(FakeSource, "splits", lambda *a: _splits(*a)[:1])


def cuts_as_it_likes(plant: Plant) -> None:
    turn = itertools.count()

    def splits(source: FakeSource, start: Offsets, end: Offsets | None) -> list[Split]:
        found = list(_splits(source, start, end))
        return found if next(turn) % 2 else found[::-1]

    plant(FakeSource, "splits", splits)


def reads_what_is_there_now(plant: Plant) -> None:
    """The end of a split is where its list ends when it is read."""

    def read(reader: FakeReader, timeout: float) -> pa.RecordBatch | None:
        if not reader.finished and reader._end is not None:
            reader._end = reader._numbers.at(len(reader._numbers.read()))
        return _read(reader, timeout)

    plant(FakeReader, "read", read)


def starts_one_too_late(plant: Plant) -> None:
    """Each epoch begins after the row that the one before ended at."""

    def splits(source: FakeSource, start: Offsets, end: Offsets | None) -> list[Split]:
        found = []
        for split in _splits(source, start, end):
            count = json.loads(split.start)[0]
            begin = Numbers(source.folder / split.source).at(count + 1 if count else 0)
            found.append(Split(split.source, fakes.text(begin), split.end))
        return found

    plant(FakeSource, "splits", splits)


def knows_no_limit(plant: Plant) -> None:
    plant(FakeSource, "latest", lambda self, start, limit: _latest(self, start, Limit()))


def limits_each_list(plant: Plant) -> None:
    def latest(source: FakeSource, start: Offsets, limit: Limit) -> Offsets:
        ends: dict[str, fakes.Place] = {}
        for name, place in fakes.places(start).items():
            alone = fakes.text({name: place})
            ends |= fakes.places(_latest(source, alone, limit))
        return fakes.text(ends)

    plant(FakeSource, "latest", latest)


def goes_back_when_limited(plant: Plant) -> None:
    def latest(source: FakeSource, start: Offsets, limit: Limit) -> Offsets:
        return _latest(source, source.initial() if limit.rows else start, limit)

    plant(FakeSource, "latest", latest)


def looks_once(plant: Plant) -> None:
    seen: dict[tuple[int, Offsets], Offsets] = {}

    def latest(source: FakeSource, start: Offsets, limit: Limit) -> Offsets:
        return seen.setdefault((id(source), start), _latest(source, start, limit))

    plant(FakeSource, "latest", latest)


def keys_in_any_order(plant: Plant) -> None:
    def latest(source: FakeSource, start: Offsets, limit: Limit) -> Offsets:
        found = json.loads(_latest(source, start, limit))
        return json.dumps(dict(sorted(found.items(), reverse=True)))

    plant(FakeSource, "latest", latest)


def compares_texts(plant: Plant) -> None:
    """A range is empty where the texts are other ones than it wrote itself."""

    def splits(source: FakeSource, start: Offsets, end: Offsets | None) -> list[Split]:
        return list(_splits(source, start, end)) if not end or "\n" not in end else []

    plant(FakeSource, "splits", splits)


def another_schema(plant: Plant) -> None:
    other = pa.schema([pa.field("value", pa.int64())])
    plant(FakeSource, "schema", property(lambda self: other))


def position_of_the_batch_before(plant: Plant) -> None:
    def read(reader: FakeReader, timeout: float) -> pa.RecordBatch | None:
        reader.__dict__["_before"] = right(reader)
        return _read(reader, timeout)

    right = _getter("position")
    plant(FakeReader, "read", read)
    plant(
        FakeReader,
        "position",
        property(lambda self: self.__dict__.get("_before") or right(self)),
    )


def never_ends(plant: Plant) -> None:
    plant(FakeReader, "finished", property(lambda self: False))


def ends_without_an_end(plant: Plant) -> None:
    right = _getter("finished")
    plant(
        FakeReader,
        "finished",
        property(lambda s: right(s) or s._at[0] >= len(s._numbers.read())),
    )


def gains_an_end(plant: Plant) -> None:
    right = _getter("position")

    def position(reader: FakeReader) -> Split:
        found: Split = right(reader)
        return Split(found.source, found.start, found.end or found.start)

    plant(FakeReader, "position", property(position))


def holds_a_lock(plant: Plant) -> None:
    def latest(source: FakeSource, start: Offsets, limit: Limit) -> Offsets:
        source.__dict__["lock"] = threading.Lock()
        return _latest(source, start, limit)

    plant(FakeSource, "latest", latest)


def forgets_too_much(plant: Plant) -> None:
    def committed(source: FakeSource, end: Offsets) -> None:
        for name in fakes.LISTS:
            (source.folder / name).unlink()

    plant(FakeSource, "committed", committed)


def is_never_closed(plant: Plant) -> None:
    plant(FakeSource, "until_now", lambda self: self)


def reads_a_changed_past(plant: Plant) -> None:
    plant(Numbers, "at", lambda self, count: (count, ""))

    def read(reader: FakeReader, timeout: float) -> pa.RecordBatch | None:
        batch = _read(reader, timeout)
        if batch is None and reader._end is not None:
            reader._at = reader._end
        return batch

    plant(FakeReader, "read", read)


def reads_on_whatever_it_is(plant: Plant) -> None:
    """An open reader does not look whether its list was made anew."""
    at = Numbers.at

    def read(reader: FakeReader, timeout: float) -> pa.RecordBatch | None:
        if reader._end is None:
            reader._at = at(reader._numbers, reader._at[0])
        return _read(reader, timeout)

    plant(FakeReader, "read", read)


def has_a_size_of_its_own(plant: Plant) -> None:
    plant(FakeReader, "at_most", lambda reader, rows: True)


BROKEN: dict[Bug, str] = {
    forgets_a_split: "a_range_holds_every_row_once",
    cuts_as_it_likes: "the_same_range_reads_the_same",
    reads_what_is_there_now: "the_same_range_reads_the_same",
    starts_one_too_late: "ranges_that_follow_each_other_lose_and_double_nothing",
    knows_no_limit: "latest_keeps_to_its_limit_and_still_gets_to_the_end",
    limits_each_list: "latest_keeps_to_its_limit_and_still_gets_to_the_end",
    goes_back_when_limited: "latest_never_goes_back",
    looks_once: "latest_asked_again_sees_no_less",
    keys_in_any_order: "offsets_are_json_with_sorted_keys",
    compares_texts: "offsets_survive_an_engines_log",
    another_schema: "batches_have_the_schema",
    position_of_the_batch_before: "a_position_reopened_yields_exactly_the_rest",
    never_ends: "a_finished_reader_yields_no_more",
    ends_without_an_end: "a_split_without_an_end_goes_on",
    gains_an_end: "a_split_without_an_end_goes_on",
    holds_a_lock: "a_source_can_be_pickled_at_any_time",
    forgets_too_much: "what_is_committed_need_not_be_planned_again",
    is_never_closed: "closed_to_what_comes_it_comes_to_an_end",
    reads_a_changed_past: "a_changed_past_is_an_error",
    reads_on_whatever_it_is: "a_past_that_changes_under_a_reader_is_an_error",
    has_a_size_of_its_own: "a_reader_keeps_to_the_portions_that_it_is_asked_for",
}


@pytest.mark.parametrize("broken", BROKEN, ids=lambda broken: broken.__name__)
def test_check_source_finds_a_source_that(broken: Bug, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("abs_testing.ranges.PATIENCE", 0.3)
    monkeypatch.setattr("abs_testing.ranges._LOOK", 0.004)
    (check,) = (check for check in SOURCE_CHECKS if check.__name__ == BROKEN[broken])
    with planted(broken, match=check.__name__):
        run_source_check(open_fake_source, check)
