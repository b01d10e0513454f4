"""The format ``abs-delta``; see ``abs_sinks.door``. Clients are imported when they are used."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl

import pyarrow as pa

from abs_core.contracts import Committer, Inventory
from abs_core.model import Finding, Guarantee
from abs_sinks.door import Around, SinkFormat

if TYPE_CHECKING:
    from abs_sinks.delta import DeltaOptions, DeltaSink


class DeltaFormat(SinkFormat):
    """A Delta table in a bucket or in a folder.

    ``delta:s3://bucket/path`` and ``delta:/folder`` are the sink's option path, the query other options
    of the sink (``?endpoint=http://host:port&region=...``); credentials come by boto3's chain.
    """

    name = "abs-delta"
    schemes = ("delta",)
    library = "abs_sinks.delta.sink"

    def parse(self, given: Mapping[str, str]) -> DeltaOptions:
        from abs_sinks.delta.options import DeltaOptions

        return DeltaOptions.parse(given)

    def at(self, url: str, table: str | None = None, stateschema: str = "abs") -> DeltaOptions:
        path, _, query = url.partition("?")
        return self.parse({**dict(parse_qsl(query)), "path": path.removeprefix("delta:")})

    def sink(self, options: DeltaOptions, schema: pa.Schema, *, alone: bool = True) -> DeltaSink:
        """The same sink in every job: the register and the table never change together."""
        from abs_sinks.delta.sink import DeltaSink

        return DeltaSink(options, schema)

    def administer(self, options: DeltaOptions) -> tuple[Inventory, Committer]:
        from abs_sinks.lake.committer import LakeCommitter
        from abs_sinks.lake.sink import Place

        place = Place(options, options.path)
        files = place.files(sized=True)
        return place.register(), LakeCommitter(options.table, place.options.path.folder, files)

    def read(self, options: DeltaOptions) -> pa.RecordBatchReader:
        return options.table.read()

    def guarantee(self, options: DeltaOptions) -> Guarantee:
        from abs_sinks.lake.sink import GUARANTEE

        return GUARANTEE

    def where(self, options: DeltaOptions) -> str:
        return f"delta:{options.path}"

    def identity(self, options: DeltaOptions) -> str | None:
        """The table's id; None while there is no table."""
        snapshot = options.table.load()
        return None if snapshot is None else f"delta:{snapshot.id}"

    def claims(self, url: str) -> bool:
        return url.strip().lower().startswith("delta:")

    def preflight(self, options: DeltaOptions, around: Around) -> Sequence[Finding]:
        from abs_sinks.lake.sink import Place, examined

        return examined(options, options.table, Place(options, options.path), around.schema)


FORMAT = DeltaFormat()
