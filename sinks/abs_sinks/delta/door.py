"""The format ``abs-delta``; see ``abs_sinks.door``. Clients are imported when they are used."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl

import pyarrow as pa

from abs_sinks.asof import AsOf, Reading
from abs_sinks.lake.format import LakeFormat, place_in

if TYPE_CHECKING:
    from abs_sinks.delta import DeltaOptions, DeltaSink


class DeltaFormat(LakeFormat):
    """A Delta table in a bucket or in a folder.

    ``delta:s3://bucket/path`` and ``delta:/folder`` are the sink's option path, the query other options
    of the sink (``?endpoint=http://host:port&region=...``); credentials come by boto3's chain.
    """

    name = "abs-delta"
    schemes = ("delta",)
    library = "abs_sinks.delta.sink"

    def parse(self, options: Mapping[str, str]) -> DeltaOptions:
        from abs_sinks.delta.sink import DeltaOptions

        return DeltaOptions.parse(options)

    def recognises(self, options: Mapping[str, str]) -> bool:
        """A folder: no other sink writes to one. A table in a bucket looks like any path there."""
        return options.get("path", "").strip().startswith(("/", "file:"))

    def at(self, url: str, table: str | None = None, stateschema: str = "abs") -> DeltaOptions:
        named, _, query = url.partition("?")
        return self.parse({**dict(parse_qsl(query)), "path": named.removeprefix("delta:")})

    def sink(self, options: DeltaOptions, schema: pa.Schema, *, alone: bool = True) -> DeltaSink:
        """The same sink in every job: the register and the table never change together."""
        from abs_sinks.delta.sink import DeltaSink

        return DeltaSink(options, schema)

    def where(self, options: DeltaOptions) -> str:
        return f"delta:{options.path}"

    def dataset(self, options: DeltaOptions, target: str) -> tuple[str, str]:
        """The table's folder."""
        if "://" in options.path:
            return super().dataset(options, options.path)
        return "file", options.path

    def as_of(self, mark: str, options: DeltaOptions | None = None) -> AsOf:
        """See ``SinkFormat``: a version of the table."""
        place = place_in(mark)
        reading = None
        if options is not None:
            settings = {"versionAsOf": place, "path": options.path}
            reading = Reading("delta", settings, partial(options.address.read, place))
        return AsOf({"version": int(place)}, f"version {place}", reading=reading)


FORMAT = DeltaFormat()
