"""Options of the Kafka source: Spark's names and meanings, and what is refused."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from abs_clients.kafka.configs import admin_settings
from abs_core.errors import OptionError
from abs_core.source import Limit
from abs_sources.kafka.bounds import EARLIEST, LATEST, Bound, resolve
from abs_sources.kafka.options import KafkaSourceOptions

BASE = {"kafka.bootstrap.servers": "host:9092", "subscribe": "t"}


def parse(given: Mapping[str, str] | None = None, *, batch: bool = False) -> KafkaSourceOptions:
    return KafkaSourceOptions.parse({**BASE, **(given or {})}, batch=batch)


def refused(given: Mapping[str, str], *, batch: bool = False) -> str:
    with pytest.raises(OptionError) as error:
        parse(given, batch=batch)
    return str(error.value)


def test_a_stream_starts_at_the_end_and_a_batch_at_the_beginning() -> None:
    assert parse().start == Bound(everywhere=LATEST)
    assert parse(batch=True).start == Bound(everywhere=EARLIEST)


def test_names_are_taken_in_any_case_and_the_client_s_are_passed_on() -> None:
    options = KafkaSourceOptions.parse(
        {
            "KAFKA.bootstrap.servers": "h:1",
            "subscribepattern": "t.*",
            "maxoffsetspertrigger": "7",
            "kafka.sasl.password": "hunter2",
        }
    )
    assert options.pattern == "t.*"
    assert options.limit == Limit(rows=7)
    assert options.consumer["sasl.password"] == "hunter2"
    assert "hunter2" not in repr(options)


def test_a_start_is_read_as_spark_reads_it() -> None:
    offsets = '{"t": {"0": 12, "1": -2, "2": -1}}'
    found = parse({"startingOffsets": offsets}).start
    assert found.offsets == {("t", 0): 12, ("t", 1): EARLIEST, ("t", 2): LATEST}
    assert parse({"startingOffsets": "EARLIEST"}).start == Bound(everywhere=EARLIEST)
    assert parse({"startingTimestamp": "5", "startingOffsets": offsets}).start.times == {None: 5}
    by_time = parse({"startingOffsetsByTimestamp": '{"t": {"0": 5}}', "startingOffsets": "latest"})
    assert by_time.start.times == {("t", 0): 5}


def test_records_to_skip_are_named_by_topic_partition_and_offset() -> None:
    found = parse({"skipOffsets": '{"t": {"0": [17, 3], "1": []}, "u": {"2": [0]}}'}).skipped
    assert found == {("t", 0, 17), ("t", 0, 3), ("u", 2, 0)}
    assert parse({}).skipped == frozenset()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"startingOffsets": "newest"}, "startingOffsets must be earliest, latest or JSON"),
        ({"startingOffsets": "[1]"}, "startingOffsets must be earliest, latest or JSON like"),
        ({"startingOffsetsByTimestamp": "5"}, 'must be JSON like {"topic": {"0": 12'),
        ({"startingOffsets": '{"t": {"0": -3}}'}, "numbers from -2 on"),
        ({"startingOffsets": '{"t": 3}'}, "JSON like"),
        ({"startingOffsets": "{}"}, "not empty"),
        (
            {"skipOffsets": '{"t": {"0": 17}}'},
            'skipOffsets must be JSON like {"topic": {"0": [17]}}',
        ),
        ({"skipOffsets": '{"t": {"0": ["17"]}}'}, "skipOffsets must be JSON like"),
        ({"startingTimestamp": "yesterday"}, "milliseconds since 1970"),
        ({"endingOffsets": "latest"}, "A stream has no end: endingOffsets"),
        ({"assign": '{"t": [0]}'}, "Exactly one of subscribe, assign and subscribePattern"),
        ({"subscribe": "a,,b"}, "none empty"),
        ({"maxOffsetPerTrigger": "1"}, "maxOffsetsPerTrigger"),
        ({"minoffsetspertrigger": "1"}, "minOffsetsPerTrigger is not one of ours"),
        ({"topic": "t"}, "subscribe"),
        ({"kafka.auto.offset.reset": "latest"}, "use startingOffsets"),
        ({"kafka.enable.auto.commit": "true"}, "the engine keeps the offsets"),
        ({"kafka.sasl.jaas.config": "x"}, "kafka.sasl.username"),
        ({"kafka.isolation.level": "serializable"}, "read_committed or read_uncommitted"),
        ({"kafka.bootstrap.servers": " "}, "kafka.bootstrap.servers is empty"),
    ],
)
def test_what_cannot_be_is_refused_by_name(given: dict[str, str], said: str) -> None:
    assert said in refused(given)


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("assign", '{"t": [0', "kafka: The option assign must be JSON like"),
        ("subscribe", " ", "kafka: The option subscribe must be a list of topics"),
        (
            "subscribePattern",
            "t(",
            "kafka: The option subscribePattern must be a regular expression",
        ),
    ],
)
def test_what_is_malformed_is_not_told_to_be_missing(name: str, value: str, said: str) -> None:
    with pytest.raises(OptionError) as caught:
        KafkaSourceOptions.parse({"kafka.bootstrap.servers": "a:1", name: value})
    assert said in str(caught.value)
    assert "Exactly one" not in str(caught.value)


def test_an_end_is_no_beginning() -> None:
    assert "must be latest or JSON like" in refused({"endingOffsets": "earliest"}, batch=True)


def test_a_batch_that_starts_at_the_end_is_refused() -> None:
    assert "nothing would be read" in refused({"startingOffsets": "latest"}, batch=True)


def test_all_problems_are_told_at_once() -> None:
    assert "2 options are wrong" in refused({"minPartitions": "0", "failOnDataLoss": "maybe"})


def test_only_committed_records_are_read_and_nothing_is_committed() -> None:
    settings = parse().consumer
    assert settings["isolation.level"] == "read_committed"
    assert settings["enable.auto.commit"] is False
    level = {"kafka.isolation.level": "read_uncommitted"}
    assert parse(level).consumer["isolation.level"] == "read_uncommitted"
    assert "isolation.level" not in admin_settings(parse(level).client)


FIRST, END = {("t", 0): 3, ("t", 1): 0}, {("t", 0): 9, ("t", 1): 5}


def resolved(bound: Bound, without: int | None = None) -> dict[tuple[str, int], int]:
    late = {("t", 0): 6, ("t", 1): None}
    return resolve(bound, FIRST, END, lambda asked: late, without=without, option="it")


def test_a_bound_is_looked_up_per_partition() -> None:
    assert resolved(Bound(everywhere=EARLIEST)) == FIRST
    assert resolved(Bound(everywhere=LATEST)) == END
    given = {("t", 0): 4, ("t", 1): LATEST}
    assert resolved(Bound(offsets=given)) == {("t", 0): 4, ("t", 1): 5}


def test_a_time_that_no_record_has_is_an_error_or_the_end() -> None:
    with pytest.raises(OptionError, match="no record with such a time, or a later one, in t-1"):
        resolved(Bound(times={None: 77}))
    assert resolved(Bound(times={None: 77}), LATEST) == {("t", 0): 6, ("t", 1): 5}


@pytest.mark.parametrize("given", [{("t", 0): 1}, {**FIRST, ("u", 0): 1}])
def test_every_partition_is_named_and_no_other(given: dict[tuple[str, int], int]) -> None:
    with pytest.raises(OptionError, match="names partitions that are not read"):
        resolved(Bound(offsets=given))
