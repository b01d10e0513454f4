"""The sink for a Delta table, and its options, read once into one typed value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from abs_clients.delta.log import DeltaLog
from abs_clients.options import described
from abs_core.patience import Patience
from abs_sinks.lake.folder import TableFiles
from abs_sinks.lake.options import FOLDER, LakeOptions
from abs_sinks.lake.sink import LakeSink

NAME = "abs-delta"


@described
@dataclass(frozen=True, slots=True, kw_only=True)
class DeltaOptions(LakeOptions):
    """Where and how to write."""

    path: Annotated[
        str,
        FOLDER,
        "the table's folder: `s3://bucket/prefix`, or an absolute path that all processes see",
    ]

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> DeltaOptions:
        """See ``LakeOptions.parse_as``."""
        return cls.parse_as(NAME, options, required="path")

    def place(self, snapshot: Any) -> TableFiles:
        return TableFiles(self.files(self.path), self.path)

    @property
    def in_bucket(self) -> bool:
        return self.path.startswith("s3")

    @property
    def address(self) -> DeltaLog:
        return DeltaLog(self.path, self.server if self.in_bucket else None)

    @property
    def patience(self) -> Patience:
        """With the store."""
        where = f"S3 at {self.server.endpoint or 'Amazon'}, " if self.in_bucket else ""
        return Patience(self.common.patience, system=f"the Delta table {where}{self.path}")


class DeltaSink(LakeSink):
    """See ``LakeSink``."""

    scheme = "delta"
