"""Planning of the Kafka source: pure functions, by example and by property."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from abs_core.errors import ReplayMismatchError
from abs_sources.kafka import KafkaSource, KafkaSourceOptions
from abs_sources.kafka.offsets import Partition, Range, TopicOffsets
from abs_sources.kafka.planning import Facts, advance, begins, losses, ranges, share_out

ID = "anId"
NUMBERS = st.integers(0, 5)
OFFSETS = st.integers(0, 10**12)


def place(*offsets: int, topic: str = "t", name: str = ID) -> TopicOffsets:
    return TopicOffsets({topic: name}, {(topic, n): offset for n, offset in enumerate(offsets)})


def facts(first: list[int], end: list[int], name: str = ID) -> Facts:
    return Facts({"t": name}, place(*first).next, place(*end).next)


def whole(parts: list[Range]) -> dict[Partition, list[tuple[int, int | None]]]:
    found: dict[Partition, list[tuple[int, int | None]]] = {}
    for part in parts:
        found.setdefault((part.topic, part.partition), []).append((part.start, part.end))
    return found


@given(st.dictionaries(NUMBERS, OFFSETS), st.sampled_from([None, 1]))
def test_a_place_is_the_same_place_after_its_text(
    offsets: dict[int, int], indent: int | None
) -> None:
    before = TopicOffsets(
        {"t.a-b_c": ID}, {("t.a-b_c", n): offset for n, offset in offsets.items()}
    )
    respaced = json.dumps(json.loads(before.text), indent=indent)
    assert TopicOffsets.parse(respaced) == before
    assert TopicOffsets.parse(respaced).text == before.text


def test_equal_places_are_equal_texts() -> None:
    offsets = {(topic, n): n for topic in "ab" for n in range(12)}
    one = TopicOffsets({"a": ID, "b": ID}, offsets)
    other = TopicOffsets({"b": ID, "a": ID}, dict(reversed(offsets.items())))
    assert one.text == other.text


@pytest.mark.parametrize("text", ["{", "[]", "1", '{"t":{"0":3}}', '{"t":null}', '{"t":{"id":1}}'])
def test_offsets_of_another_source_are_refused(text: str) -> None:
    with pytest.raises(ReplayMismatchError, match="not offsets of this source"):
        TopicOffsets.parse(text)


def test_a_range_is_the_same_range_after_its_split() -> None:
    for end in (9, None):
        part = Range("t", ID, 3, 5, end)
        assert Range.of(part.split) == part


@given(st.lists(st.tuples(OFFSETS, OFFSETS), min_size=1, max_size=6), st.integers(1, 10**9))
def test_a_limit_is_kept_and_used_to_the_full(behind: list[tuple[int, int]], most: int) -> None:
    starts = {("t", n): start for n, (start, _) in enumerate(behind)}
    there = {("t", n): start + more for n, (start, more) in enumerate(behind)}
    ends = share_out(starts, there, most)
    taken = sum(ends[p] - starts[p] for p in ends)
    assert taken == min(most, sum(more for _, more in behind))
    assert all(starts[p] <= ends[p] <= there[p] for p in there)


def test_a_limit_is_shared_out_by_how_far_behind_partitions_are() -> None:
    starts = {("t", 0): 0, ("t", 1): 100, ("t", 2): 7}
    there = {("t", 0): 900, ("t", 1): 200, ("t", 2): 7}
    assert share_out(starts, there, 100) == {("t", 0): 90, ("t", 1): 110, ("t", 2): 7}


LAGS = st.lists(st.one_of(st.integers(0, 3), OFFSETS), min_size=1, max_size=6)


@given(st.lists(OFFSETS, min_size=6, max_size=6), st.lists(LAGS, min_size=8), st.integers(1, 9))
def test_no_partition_starves_whatever_is_written_to_the_others(
    begun: list[int], written: list[list[int]], most: int
) -> None:
    assert _longest_wait(share_out, begun, written, most) <= -(-len(begun) // most)


def test_a_limit_whose_rest_goes_to_the_first_partitions_is_found_to_starve_others() -> None:
    def rounded(
        starts: Mapping[Partition, int], ends: Mapping[Partition, int], most: int
    ) -> dict[Partition, int]:
        behind = {p: ends[p] - starts[p] for p in sorted(ends)}
        total = max(most, sum(behind.values()))
        shares = {p: count * most // total for p, count in behind.items()}
        first = next((p for p in behind if behind[p] > shares[p]), None)
        if first is not None:
            shares[first] += most - sum(shares.values())
        return {p: starts[p] + shares[p] for p in ends}

    written = [[10**6, 1], *[[100, 0]] * 59]
    assert _longest_wait(rounded, [0] * 6, written, 100) == 60
    assert _longest_wait(share_out, [0] * 6, written, 100) == 1


def _longest_wait(
    share: Callable[..., dict[Partition, int]],
    begun: list[int],
    written: list[list[int]],
    most: int,
) -> int:
    """For how many epochs a partition with records was not read, the one that read it included."""
    starts = {("t", n): offset for n, offset in enumerate(begun)}
    there, waits, longest = dict(starts), dict.fromkeys(starts, 0), 0
    for more in written:
        for number, count in enumerate(more):
            there["t", number] += count
        after = share(starts, there, most)
        for each, offset in starts.items():
            waits[each] = waits[each] + 1 if offset < there[each] else 0
            longest = max(longest, waits[each])
            if after[each] > offset:
                waits[each] = 0
        starts = after
    return longest


@given(
    st.lists(st.tuples(OFFSETS, st.integers(0, 10_000)), min_size=1, max_size=6),
    st.one_of(st.none(), st.integers(1, 40)),
    st.one_of(st.none(), st.integers(500, 10_000)),
)
def test_parts_cover_a_range_and_do_not_overlap(
    spans: list[tuple[int, int]], at_least: int | None, most: int | None
) -> None:
    start = place(*(begin for begin, _ in spans))
    end = place(*(begin + length for begin, length in spans))
    parts = list(ranges(start, end, at_least=at_least, most_records=most))
    for number, (begin, length) in enumerate(spans):
        found = whole(parts).get(("t", number), [])
        bounds = [begin, *(until for _, until in found)]
        assert [start for start, _ in found] == bounds[:-1]
        assert bounds[-1] == begin + length
        assert all(begin < until for begin, until in found if until is not None)
        assert most is None or all(u - b <= most for b, u in found if u is not None)
    total = sum(length for _, length in spans)
    if at_least is not None:
        assert len(parts) >= min(at_least, total)


def test_a_new_partition_is_read_from_its_first_record() -> None:
    start, now = place(5), facts([0, 0], [5, 8])
    end = advance(start, now, None)
    assert losses(start, now) == []
    assert whole(list(ranges(start, end))) == {("t", 1): [(0, 8)]}


def test_a_new_partition_that_has_lost_records_is_a_loss() -> None:
    assert losses(place(5), facts([0, 3], [5, 8])) == ["the records 0 to 2 of t-1 are deleted"]


def test_what_was_read_may_be_deleted() -> None:
    assert losses(place(5), facts([5], [8])) == []


@pytest.mark.parametrize(
    ("now", "loss"),
    [
        (facts([6], [8]), "the records 5 to 5 of t-0 are deleted"),
        (facts([0], [4]), "t-0 ends at 4, and was read up to 5 before"),
        (facts([0], [9], "other"), "the topic t was deleted and created again"),
        (facts([], []), "the partition t-0 is gone"),
        (Facts({}, {}, {}), "the topic t is gone, or no longer among those that are read"),
    ],
)
def test_what_is_gone_is_a_loss(now: Facts, loss: str) -> None:
    assert losses(place(5), now) == [loss]


def test_a_topic_made_anew_is_read_from_its_beginning() -> None:
    start, now = place(5), facts([2], [9], "other")
    assert begins(start, now) == {("t", 0): 0}
    end = advance(start, now, 4)
    assert end == place(4, name="other")
    assert whole(list(ranges(start, end))) == {("t", 0): [(0, 4)]}


@pytest.mark.parametrize("away", [Facts({}, {}, {}), facts([0], [9])])
@pytest.mark.parametrize("closed", [None, place(9, 9)])
def test_what_was_away_and_comes_back_is_not_read_a_second_time(
    away: Facts, closed: TopicOffsets | None
) -> None:
    before, back = place(9, 5), facts([0, 0], [9, 7])
    meanwhile = advance(before, away, None, closed)
    assert list(ranges(before, meanwhile)) == []
    end = advance(meanwhile, back, None)
    assert whole(list(ranges(meanwhile, end))) == {("t", 1): [(5, 7)]}


def test_a_topic_that_was_away_and_is_another_is_read_from_its_beginning() -> None:
    meanwhile = advance(place(5), Facts({}, {}, {}), None)
    end = advance(meanwhile, facts([0], [3], "other"), None)
    assert end == place(3, name="other")
    assert whole(list(ranges(meanwhile, end))) == {("t", 0): [(0, 3)]}


@pytest.mark.parametrize("most", [None, 4])
def test_what_is_written_after_a_partition_has_lost_its_end_is_read(most: int | None) -> None:
    before, cut = place(10, 0), facts([0, 0], [5, 3])
    end = advance(before, cut, most)
    assert end == place(5, 3)
    assert whole(list(ranges(before, end))) == {("t", 1): [(0, 3)]}
    later = advance(end, facts([0, 0], [7, 3]), most)
    assert whole(list(ranges(end, later))) == {("t", 0): [(5, 7)]}


def test_a_closed_source_knows_no_later_partitions_and_never_goes_back() -> None:
    closed, now = place(10), facts([0, 0], [20, 5])
    assert advance(place(3), now, None, closed) == closed
    assert advance(place(12), now, None, closed) == place(12)
    assert advance(place(12, 2), now, None, closed) == place(12, 2)
    anew = facts([0], [20], "another")
    assert advance(place(3), anew, None, closed) == place(0, name="another")


@pytest.mark.parametrize(
    ("start", "end", "told"),
    [
        (place(5), place(9, name="another"), "the topic t was deleted and created again"),
        (place(5), TopicOffsets({}, {}), "the topic t is gone"),
        (place(5), place(3), "t-0 ends at 3, and was read up to 5"),
        (place(5, 5), place(7), "the partition t-1 is gone"),
    ],
)
def test_a_range_whose_end_was_planned_without_its_start_is_never_cut_short_in_silence(
    start: TopicOffsets, end: TopicOffsets, told: str, caplog: pytest.LogCaptureFixture
) -> None:
    given = {"kafka.bootstrap.servers": "nowhere:1", "subscribe": "t"}
    source = KafkaSource(KafkaSourceOptions.parse(given))
    with pytest.raises(ReplayMismatchError, match=told):
        source.splits(start.text, end.text)
    lenient = KafkaSource(KafkaSourceOptions.parse({**given, "failOnDataLoss": "false"}))
    assert all(Range.of(split).topic == "t" for split in lenient.splits(start.text, end.text))
    assert told in caplog.text


def test_a_partition_that_is_too_late_for_a_closed_source_hides_no_other() -> None:
    mine = {("t", 1): 3}
    closed = TopicOffsets({"t": ID}, {("t", 1): 10})
    assert advance(TopicOffsets({"t": ID}, mine), facts([0, 0], [5, 20]), None, closed) == closed


@pytest.mark.parametrize("name", ["aNewId", "zNewId"])
def test_a_partition_of_a_topic_that_was_made_anew_keeps_no_place(name: str) -> None:
    found = advance(place(3, 4), facts([0], [7], name), None)
    assert found == place(7, name=name)
