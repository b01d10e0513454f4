"""The sink for an Iceberg table, and its options, read once into one typed value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Annotated, Any
from urllib.parse import urlsplit

import pyarrow as pa

from abs_clients.iceberg.problems import check_location
from abs_clients.iceberg.table import IcebergTable
from abs_clients.options import described, text
from abs_core.errors import ConfigError, OptionError
from abs_core.patience import Patience
from abs_sinks.lake.folder import TableFiles
from abs_sinks.lake.options import LakeOptions
from abs_sinks.lake.sink import LakeSink

NAME = "abs-iceberg"
PREFIX = "catalog."


def _table_name(value: str) -> str:
    if "." not in value.strip("."):
        raise ValueError("a table with its namespace: db.events")
    return value.strip()


@described
@dataclass(frozen=True, slots=True, kw_only=True)
class IcebergOptions(LakeOptions):
    """Where and how to write.

    Args:
        name: the table with its namespace.
        properties: of the catalog, without the prefix; they may hold secrets.
    """

    table: Annotated[str, _table_name, "the table with its namespace: `db.events`"]
    catalog: Annotated[
        str, text, "the name of the catalog, also in pyiceberg's configuration file"
    ] = "default"
    properties: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> IcebergOptions:
        """See ``LakeOptions.parse_as``; ``catalog.*`` are pyiceberg's own properties."""
        parsed = cls.parse_as(NAME, options, required="table", prefix=PREFIX)
        named = (
            (name, value) for name, value in options.items() if name.lower().startswith(PREFIX)
        )
        properties = {name[len(PREFIX) :].lower(): value for name, value in named}
        if properties.get("type", "").lower() == "hadoop":
            raise OptionError(
                "A Hadoop catalog does not compare and set: two commits could both take place.",
                remedy="use a catalog of type sql, rest, glue or hive.",
            )
        check_location(properties.get("warehouse", ""))
        return replace(parsed, properties=tuple(sorted(properties.items())))

    def place(self, snapshot: Any) -> TableFiles | None:
        """Below the table's location, which the catalog tells."""
        if snapshot is None:
            return None
        check_location(snapshot.location)
        scheme, rest = urlsplit(snapshot.location).scheme, snapshot.location.partition(":")[2]
        if scheme in ("s3", "s3a", "s3n"):
            server = snapshot.server(self.address) or self.server
            folder = f"s3:{rest}/data"
            return TableFiles(replace(self, server=server).files(folder), folder)
        if scheme not in ("", "file"):
            raise ConfigError(
                f"The table {self.table} is at {scheme}:, where no data files are written.",
                remedy="write to a table in S3 or in a folder that all processes see.",
            )
        folder = f"/{(rest if scheme else snapshot.location).lstrip('/')}/data"
        return TableFiles(self.files(folder), folder)

    @property
    def address(self) -> IcebergTable:
        return IcebergTable(self.catalog, self.table, self.properties, self.server)

    @property
    def patience(self) -> Patience:
        """With catalog and store."""
        system = f"the Iceberg catalog {self.catalog} with the table {self.table}"
        return Patience(self.common.patience, system=system)


class IcebergSink(LakeSink):
    """See ``LakeSink``. Integers have 32 bits or more."""

    scheme = "iceberg"
    widens = True
    widened = MappingProxyType({pa.int8(): pa.int32(), pa.int16(): pa.int32()})
