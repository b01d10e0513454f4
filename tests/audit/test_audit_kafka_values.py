"""Values of a topic that are read in another format than they have are refused by name."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from abs_audit.kafka_values import AvroValues, JsonValues, RawValues, Values, in_members
from abs_clients.avro.schema import parsed
from abs_clients.avro.settings import RegistrySettings
from abs_core.errors import SchemaError

STRUCT = pa.array([{"a": 1}])
TEXT = pa.array(['{"a": 1}'])


@pytest.mark.parametrize(
    ("values", "column"),
    [
        (AvroValues("t", "t", RegistrySettings(url="http://h")), TEXT),
        (RawValues("t"), STRUCT),
        (JsonValues("t"), STRUCT),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_row_of_another_format_than_the_topics_is_refused(
    values: Values, column: pa.Array
) -> None:
    with pytest.raises(SchemaError, match="the topic is read in another format") as error:
        values.unfolded({"value": column}, ["value"])
    assert "?value=" in error.value.remedy


@pytest.mark.parametrize("value", [1.5, 7])
def test_a_value_that_may_be_several_or_none_of_a_unions_types_is_refused(value: object) -> None:
    field = {"name": "u", "type": ["int", "long", "string"]}
    union = {"type": "record", "name": "r", "fields": [field]}
    node = parsed(json.dumps(union))
    with pytest.raises(TypeError, match=r"it may be (0|2) of"):
        in_members(node, {"u": value})
