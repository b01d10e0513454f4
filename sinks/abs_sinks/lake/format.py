"""The base of the formats of tables of the lake; see ``abs_sinks.door``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from abs_clients.tablelog import TableHistory
from abs_core.contracts import Committer, Inventory
from abs_core.model import Guarantee, JobState
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

    def forget(
        self, options: LakeOptions, state: JobState, letters: bool | None = None
    ) -> Sequence[str]:
        """See ``SinkFormat``: marks in the table's log and files of locks stay, and are named."""
        from abs_core.registers import FileRegister
        from abs_sinks.lake.lookback import application_of

        snapshot = None if letters is None else options.address.load()
        place = options.place(snapshot)
        if snapshot is None or place is None:
            return ()
        numbers = [sink.number for sink in state.sinks] or [0]
        marks = [application_of(state.register, number) for number in numbers]
        # Without it, a stalled process of the job would add the files of its last epoch again.
        lines = [
            f"kept {mark} in the log of {self.where(options)}: it tells a process of the job that is "
            "still alive that its last epoch is there"
            for mark in marks
            if snapshot.version_of(mark) is not None
        ]
        register = place.register()
        if isinstance(register, FileRegister) and register.lock_of(state.job).exists():
            why = "another process may be waiting for it"
            lines.append(f"kept the lock {register.lock_of(state.job)}: {why}")
        return lines

    def claims(self, url: str) -> bool:
        return url.strip().lower().startswith(f"{self.schemes[0]}:")
