"""The column that ``value.format=avro`` of abs-kafka makes of a recorded feed, without a broker."""

from __future__ import annotations

import json

import pyarrow as pa

from abs_clients.avro.connect import CONNECT_SCHEMA, connect_schema
from abs_clients.avro.schema import parsed
from abs_sources.kafka.avro.columns import Decoder
from tests.kit.debezium.feeds import Feed


def decoded(feed: Feed) -> pa.Table:
    """The events, read by the newest schema, as the source does.

    Raises:
        ValueError: a record cannot be read; the source would stop there.
    """
    newest = parsed(feed.schemas[max(feed.schemas)])
    decoder = Decoder(newest, lambda number: parsed(feed.schemas[number]), "value")
    values, bad = decoder.decode(pa.array(feed.avro, pa.binary()))
    if bad:
        raise ValueError(f"a record cannot be read: {next(iter(bad.values()))}")
    told = {CONNECT_SCHEMA: json.dumps(connect_schema(newest))}
    return pa.table([values], schema=pa.schema([pa.field("value", values.type, metadata=told)]))
