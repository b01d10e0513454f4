"""The base of the formats of tables of the lake; see ``abs_sinks.door``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from abs_clients.tablelog import TableHistory
from abs_core.contracts import Committer, Inventory
from abs_core.model import Guarantee
from abs_sinks.capabilities import Log
from abs_sinks.door import SinkFormat

if TYPE_CHECKING:
    from abs_sinks.lake.options import LakeOptions


class TableLog(Log):
    """The table's own log."""

    def history(self, options: LakeOptions) -> TableHistory:
        return options.address.history()


def place_in(mark: str) -> str:
    """The place in the log that a mark names; raises CorruptionError."""
    from abs_sinks.lake.lookback import Logged

    return Logged.read(mark).place


class LakeFormat(SinkFormat):
    """A kind of tables; ``schemes`` has one. Clients are imported when they are used."""

    buries = True
    past = True

    def administer(self, options: LakeOptions) -> tuple[Inventory, Committer]:
        from abs_sinks.lake.committer import LakeCommitter
        from abs_sinks.lake.sink import absent

        place = options.place(options.address.load())
        if place is None:
            raise absent()
        files = place.files(sized=True)
        return place.register(), LakeCommitter(options.address, place.options.path.folder, files)

    def read(self, options: LakeOptions) -> pa.RecordBatchReader:
        return options.address.read()

    def partitions(self, options: LakeOptions) -> Sequence[str]:
        snapshot = options.address.load()
        return () if snapshot is None else snapshot.partitions

    def log(self) -> TableLog:
        return TableLog()

    def guarantee(self, options: LakeOptions) -> Guarantee:
        from abs_sinks.lake.sink import guarantee

        return guarantee(options)

    def identity(self, options: LakeOptions) -> str | None:
        """The table's id; None while there is no table."""
        snapshot = options.address.load()
        return None if snapshot is None else f"{self.schemes[0]}:{snapshot.id}"

    def claims(self, url: str) -> bool:
        return url.strip().lower().startswith(f"{self.schemes[0]}:")
