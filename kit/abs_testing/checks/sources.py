"""The rules of a source: each a function that raises AssertionError where it is broken."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterable, Iterator
from itertools import chain

from abs_core.errors import ReplayMismatchError
from abs_core.source import Limit, Offsets, Reader, Split
from abs_testing.case import rules_in
from abs_testing.harness import Record
from abs_testing.ranges import SourceCase, as_engine, equal

SourceCheck = Callable[[SourceCase], None]


def a_range_holds_every_row_once(case: SourceCase) -> None:
    start = case.source().initial()
    added = case.harness.add(40)
    equal(case.rows(start, case.latest(start)), added, "of the first range")


def the_same_range_reads_the_same(case: SourceCase) -> None:
    start, end, added = case.filled()
    first = case.by_split(start, end)
    case.harness.add(10)
    again = case.by_split(start, end)
    assert list(again) == list(first), "a range was cut into other splits the second time"
    for split, rows in first.items():
        assert again[split] == rows, (
            f"{split.source}: other rows, or another order, when read again"
        )
    equal([row for rows in again.values() for row in rows], added, "of a range read again")


def a_range_without_rows_has_none(case: SourceCase) -> None:
    start = case.source().initial()
    end = case.latest(start)
    equal(case.rows(start, end), [], "of a range of nothing")
    equal(case.rows(end, end), [], "of a range that ends where it starts")


def ranges_that_follow_each_other_lose_and_double_nothing(case: SourceCase) -> None:
    place = case.source().initial()
    added: list[Record] = []
    records: list[Record] = []
    for count in (1, 7, 0, 30):
        added += case.harness.add(count)
        end = case.latest(place)
        records += case.rows(place, end)
        place = end
    equal(records, added, "of four ranges in a row")


def latest_keeps_to_its_limit_and_still_gets_to_the_end(case: SourceCase) -> None:
    added = case.harness.add(40)
    for limit, most in case.harness.limits:
        records = []
        epochs = 0
        for start, end in _epochs(case, limit):
            rows = case.rows(start, end)
            assert len(rows) <= most, f"{len(rows)} rows in an epoch limited by {limit}"
            records += rows
            epochs += 1
        equal(records, added, f"of {epochs} epochs limited by {limit}")
        assert epochs > 1, f"{limit} limited nothing"


def latest_never_goes_back(case: SourceCase) -> None:
    _, end, _ = case.filled()
    assert case.latest(end) == end, "latest of the end is another place, with nothing new"
    for limit, _ in case.harness.limits:
        assert case.latest(end, limit) == end, f"limited by {limit}, latest of the end is elsewhere"
    case.harness.add(10)
    assert case.latest(end) != end, "new rows are not found"


def latest_asked_again_sees_no_less(case: SourceCase) -> None:
    source = case.source()
    start = source.initial()
    added: list[Record] = []
    for _ in range(3):
        added += case.harness.add(6)
        equal(case.rows(start, source.latest(start, Limit())), added, "of what one source sees")


def offsets_are_json_with_sorted_keys(case: SourceCase) -> None:
    start, end, _ = case.filled()
    for offsets in (start, end):
        value = json.loads(offsets)
        assert json.loads(json.dumps(value, sort_keys=True)) == value
        keys = json.dumps(value) == json.dumps(value, sort_keys=True)
        assert keys, f"the keys of these offsets are not sorted: {offsets}"
        assert isinstance(value, dict), "offsets are not a JSON object, as engines keep them"


def offsets_survive_an_engines_log(case: SourceCase) -> None:
    start, end, added = case.filled()
    spaced_start, spaced_end = as_engine(start), as_engine(end)
    equal(
        case.rows(spaced_start, spaced_end),
        added,
        "of a range whose offsets were written with other blanks",
    )
    assert json.loads(case.latest(spaced_end)) == json.loads(end), "the end is another place then"


def splits_have_their_names_and_ends(case: SourceCase) -> None:
    start, end, _ = case.filled()
    splits = case.source().splits(start, end)
    assert len(splits) > 1, "all lies in one split: the harness is to fill two"
    assert len(set(splits)) == len(splits), "a split is there twice"
    for split in splits:
        json.loads(split.start)
        assert split.source, "a split has no name"
        assert split.end is not None, f"{split.source}: a split of a range with an end has none"


def batches_have_the_schema(case: SourceCase) -> None:
    start, end, _ = case.filled()
    source = case.source()
    with case.opened(source.splits(start, end), source) as readers:
        for batch in chain.from_iterable(map(case.batches, readers)):
            assert batch.schema.equals(source.schema), "a batch has another schema than the source"


def a_position_reopened_yields_exactly_the_rest(case: SourceCase) -> None:
    start, end, _ = case.filled()
    cuts = 0
    for split in case.source().splits(start, end):
        whole = case.read(split)
        for read, position in _positions(case, split):
            assert case.read(position) == whole[read:], (
                f"{split.source}: reopened after {read} of {len(whole)} rows, at {position.start}, "
                "it does not yield the rest"
            )
            cuts += 0 < read < len(whole)
    assert cuts, "no split gave more than one batch: the harness is to make small ones"


def a_finished_reader_yields_no_more(case: SourceCase) -> None:
    start, end, added = case.filled()
    source, count = case.source(), 0
    for split in source.splits(start, end):
        with case.opened([split], source) as (reader,):
            count += sum(batch.num_rows for batch in case.batches(reader))
            case.harness.add(4)
            assert reader.finished, f"{split.source}: not finished at its end"
            assert reader.read(0.05) is None, f"{split.source}: rows come after the end"
            assert case.read(reader.position) == [], f"{split.source}: its end, reopened, has rows"
    assert count == len(added), f"{count} rows were read of {len(added)}"


def a_split_without_an_end_goes_on(case: SourceCase) -> None:
    start, _, added = case.filled()
    source = case.source()
    with case.opened(source.splits(start, None), source) as readers:
        records = case.drain(readers, len(added))
        equal(records, added, "of splits without an end")
        more = case.harness.add(12)
        records = case.drain(readers, len(more))
        equal(records, more, "that came while splits without an end were open")
        assert not any(reader.finished for reader in readers), "a split without an end is finished"
        positions = [reader.position for reader in readers]
    assert all(position.end is None for position in positions), "a position has gained an end"
    more = case.harness.add(12)
    with case.opened(positions) as again:
        equal(case.drain(again, len(more)), more, "of splits without an end, opened again")


def a_source_can_be_pickled_at_any_time(case: SourceCase) -> None:
    source = case.source()
    start = source.initial()
    added = case.harness.add(20)
    end = pickle.loads(pickle.dumps(source)).latest(start, Limit())  # noqa: S301 - our own bytes
    assert source.latest(start, Limit()) == end, "pickled, it sees another end"
    used = pickle.loads(pickle.dumps(source))  # noqa: S301
    records = []
    for split in pickle.loads(pickle.dumps(used.splits(start, end))):  # noqa: S301
        records += case.read(split, used)
    equal(records, added, "by a source that was pickled after use")


def what_is_committed_need_not_be_planned_again(case: SourceCase) -> None:
    source = case.source()
    start, end, _ = case.filled()
    source.splits(start, end)
    source.committed(end)
    added = case.harness.add(20)
    equal(case.rows(end, source.latest(end, Limit()), source), added, "after what was committed")
    equal(case.rows(end, case.latest(end)), added, "after what was committed, by a new source")


def closed_to_what_comes_it_comes_to_an_end(case: SourceCase) -> None:
    open_source = case.source()
    place = open_source.initial()
    added = case.harness.add(30)
    source = open_source.until_now()
    if source is None:
        return
    records = []
    for _ in range(100):
        case.harness.add(2)
        end = source.latest(place, case.harness.limits[0][0])
        if end == place:
            break
        records += case.rows(place, end)
        place = end
    else:
        raise AssertionError("a source that was closed never comes to an end")
    equal(records, added, "of a source that was closed to what comes")
    beyond = case.latest(place)
    assert beyond != place, "what came later is not found by a source that is not closed"
    assert source.latest(beyond, Limit()) == beyond, "from a place beyond its end, it goes back"


def a_changed_past_is_an_error(case: SourceCase) -> None:
    assert case.harness.damages, "the harness knows no way in which the past can change"
    for name in case.harness.damages:
        with case.another() as other:
            _changed(other, name)


def a_past_that_changes_under_a_reader_is_an_error(case: SourceCase) -> None:
    """A split without an end must not return changed records as if nothing had changed."""
    for name in case.harness.damages:
        with case.another() as other:
            start, _, added = other.filled()
            source = other.source()
            with other.opened(source.splits(start, None), source) as readers:
                other.drain(readers, len(added))
                _kept(readers)
                other.harness.damages[name]()
                try:
                    records = other.whatever_comes(readers)
                    _kept(readers)
                except ReplayMismatchError:
                    records = []
            assert not records, (
                f"{name}: {len(records)} rows came to open readers, without an error"
            )


def _kept(readers: Iterable[Reader]) -> None:
    """Check the readers, as an engine does before it stores their positions."""
    for reader in readers:
        reader.check()


def a_reader_keeps_to_the_portions_that_it_is_asked_for(case: SourceCase) -> None:
    start, end, added = case.filled()
    records: list[Record] = []
    for split in case.source().splits(start, end):
        with case.opened([split]) as (reader,):
            limited = reader.at_most(2)
            for batch in case.batches(reader):
                rows = batch.num_rows
                assert rows <= 2 or not limited, f"a batch of {rows} rows; 2 were asked for"
                records += case.harness.records(batch)
    equal(records, added, "in small batches")


def _changed(case: SourceCase, name: str) -> None:
    start, end, _ = case.filled()
    before = case.by_split(start, end)
    case.harness.damages[name]()
    try:
        after = case.by_split(start, end)
    except ReplayMismatchError:
        return
    same = [*before.values()] == [*after.values()]
    raise AssertionError(
        f"{name}: the range reads {'as before' if same else 'differently'}, without an error"
    )


def _epochs(case: SourceCase, limit: Limit) -> Iterator[tuple[Offsets, Offsets]]:
    place = case.source().initial()
    for _ in range(100):
        end = case.latest(place, limit)
        if end == place:
            return
        yield place, end
        place = end
    raise AssertionError(f"limited by {limit}, forty rows take more than a hundred epochs")


def _positions(case: SourceCase, split: Split) -> Iterable[tuple[int, Split]]:
    """The position before the first batch and after each, with the rows read until then."""
    with case.opened([split]) as (reader,):
        read = 0
        yield read, reader.position
        for batch in case.batches(reader):
            read += batch.num_rows
            yield read, reader.position


SOURCE_CHECKS = rules_in(__name__, "SourceCase")
"""Every rule, in order."""
