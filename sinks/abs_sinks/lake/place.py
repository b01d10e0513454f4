"""Where a table's data files and its own register are: a bucket's folder, or a local one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from abs_clients.s3.location import OURS
from abs_core.contracts import Inventory
from abs_core.model import Finding
from abs_core.registers.file import FileRegister
from abs_sinks.lake.folder import FolderStore
from abs_sinks.lake.options import LakeOptions
from abs_sinks.s3.preflight import preflight
from abs_sinks.s3.register import S3Register
from abs_sinks.s3.store import BucketStore, Store
from abs_sinks.s3.twophase import TwoPhaseCommitter


class Place:
    """A folder of data files: ``s3://bucket/prefix``, or a local path."""

    def __init__(self, options: LakeOptions, folder: str) -> None:
        self.options = options.files(folder)
        self._local = None if folder.startswith("s3") else Path(folder)

    def store(self) -> Store:
        return BucketStore(self.options) if self._local is None else FolderStore(self._local)

    def register(self) -> Inventory:
        if self._local is None:
            return S3Register(self.options)
        return FileRegister(self._local / OURS / "register")

    def files(self, *, sized: bool = False) -> TwoPhaseCommitter:
        return TwoPhaseCommitter(self.options, sized=sized, store=self.store())

    def preflight(self) -> Sequence[Finding]:
        return preflight(self.options, None) if self._local is None else ()
