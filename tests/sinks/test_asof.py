"""What the marks of each system tell a reader, and what they do not tell."""

from __future__ import annotations

import json

import pytest

from abs_core.errors import CorruptionError, OptionError
from abs_core.model import HandleName
from abs_sinks.asof import NOW
from abs_sinks.door import format_named
from abs_sinks.kafka.mark import Ends, Topics
from abs_sinks.lake.lookback import Logged
from abs_sinks.s3.layout import FileName, UpTo

REGISTER = "0123456789abcdef"


def key(generation: int, epoch: int, register: str = REGISTER) -> str:
    handle = HandleName(register, "job", generation, epoch, 0, "aa")
    return f"out/day=1/{FileName(handle, 0)}"


def test_a_topics_ends_are_told_unless_they_are_from_before_or_too_many() -> None:
    kafka = format_named("abs-kafka")
    ends = {"a": Ends("id", (3, 0))}
    told = kafka.as_of(Topics(ends).to_text())
    assert told.told == {"topics": {"a": {"id": "id", "ends": {"0": 3, "1": 0}}}}
    assert (told.text, told.unreadable, told.reading) == ("a 0:3 1:0", "", None)
    before = Topics(ends, before=True)
    assert Topics.read(before.to_text()) == before
    assert "before it" in kafka.as_of(before.to_text()).unreadable
    many = Topics({**ends, "b": Ends("id", ())})
    assert "so many partitions" in kafka.as_of(many.to_text()).unreadable


def test_a_tables_version_or_snapshot_is_told() -> None:
    delta = format_named("abs-delta").as_of(Logged("17", "abs-x-0", 1).to_text())
    assert (delta.told, delta.unreadable) == ({"version": 17}, "")
    iceberg = format_named("abs-iceberg").as_of(Logged("4 5678", "abs-x-0", 1).to_text())
    assert (iceberg.told, iceberg.unreadable) == ({"snapshot_id": 5678}, "")


def test_the_objects_of_a_register_up_to_an_epoch_are_told_by_their_names() -> None:
    told = format_named("abs-s3").as_of(json.dumps({"objects": 3, "keys": [key(2, 7)]})).told
    assert (told["generation"], told["epoch"], told["objects"]) == (2, 7, 3)
    upto = UpTo(told["register"], (told["generation"], told["epoch"]))
    assert UpTo.parse(str(upto)) == upto
    # An adoption counts epochs anew, in a higher generation.
    assert all(map(upto.has, [key(2, 7), key(2, 0), key(1, 99)]))
    assert not any(map(upto.has, [key(2, 8), key(3, 0), key(2, 7, "f" * 16), "out/other.parquet"]))
    with pytest.raises(OptionError, match="register-generation-epoch"):
        UpTo.parse("latest")


def test_a_system_without_a_past_is_read_now() -> None:
    assert format_named("abs-postgres").as_of('{"markers": [1, 2, 3, "abs"]}') is NOW


@pytest.mark.parametrize("name", ["abs-kafka", "abs-delta", "abs-iceberg", "abs-s3"])
@pytest.mark.parametrize("mark", ["", "{}", "[]", '{"keys": [], "objects": 0}'])
def test_a_damaged_mark_is_told(name: str, mark: str) -> None:
    with pytest.raises(CorruptionError, match="cannot be read"):
        format_named(name).as_of(mark)
