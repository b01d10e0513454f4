"""The format ``abs-iceberg``; see ``abs_sinks.door``. Clients are imported when they are used."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl

import pyarrow as pa

from abs_sinks.asof import AsOf, Reading
from abs_sinks.lake.format import LakeFormat, place_in

if TYPE_CHECKING:
    from abs_sinks.iceberg import IcebergOptions, IcebergSink


class IcebergFormat(LakeFormat):
    """An Iceberg table of a catalog.

    ``iceberg:db.events`` is the sink's option table, the query other options of the sink
    (``?catalog=prod&catalog.uri=...``); credentials come as pyiceberg and boto3 find them.
    """

    name = "abs-iceberg"
    schemes = ("iceberg",)
    marks = ("catalog", "catalog.")
    library = "abs_sinks.iceberg.sink"

    def parse(self, options: Mapping[str, str]) -> IcebergOptions:
        from abs_sinks.iceberg.sink import IcebergOptions

        return IcebergOptions.parse(options)

    def at(self, url: str, table: str | None = None, stateschema: str = "abs") -> IcebergOptions:
        named, _, query = url.partition("?")
        return self.parse({**dict(parse_qsl(query)), "table": named.removeprefix("iceberg:")})

    def sink(
        self, options: IcebergOptions, schema: pa.Schema, *, alone: bool = True
    ) -> IcebergSink:
        """The same sink in every job: the register and the table never change together."""
        from abs_sinks.iceberg.sink import IcebergSink

        return IcebergSink(options, schema)

    def where(self, options: IcebergOptions) -> str:
        return f"iceberg:{options.table}"

    def dataset(self, options: IcebergOptions, target: str) -> tuple[str, str]:
        """The catalog's name, and the table's in it."""
        return f"iceberg://{options.catalog}", options.table

    def as_of(self, mark: str, options: IcebergOptions | None = None) -> AsOf:
        """See ``SinkFormat``: a snapshot of the table."""
        from abs_clients.iceberg.table import snapshot_at

        place = place_in(mark)
        snapshot = snapshot_at(place)
        reading = None
        if options is not None:
            rows = partial(options.address.read, place)
            reading = Reading("iceberg", {"snapshot-id": str(snapshot)}, rows)
        return AsOf({"snapshot_id": snapshot}, f"snapshot {snapshot}", reading=reading)


FORMAT = IcebergFormat()
