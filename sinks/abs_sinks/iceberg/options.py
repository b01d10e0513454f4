"""The options of ``abs-iceberg``, read once into one typed value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

from abs_clients.iceberg.table import IcebergTable
from abs_clients.options import text
from abs_core.patience import Patience
from abs_sinks.lake.options import LakeOptions
from abs_sinks.lake.place import Place

NAME = "abs-iceberg"
PREFIX = "catalog."


def _table_name(given: str) -> str:
    if "." not in given.strip("."):
        raise ValueError("a table with its namespace: db.events")
    return given.strip()


@dataclass(frozen=True, slots=True, kw_only=True)
class IcebergOptions(LakeOptions):
    """Where and how to write.

    Args:
        name: the table with its namespace.
        catalog: the catalog's name in pyiceberg's configuration.
        properties: of the catalog, without the prefix; they may hold secrets.
    """

    table: Annotated[str, _table_name]
    catalog: Annotated[str, text] = "default"
    properties: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> IcebergOptions:
        """See ``LakeOptions.parse_as``; ``catalog.*`` are pyiceberg's own properties."""
        parsed = cls.parse_as(NAME, given, required="table", prefix=PREFIX)
        named = ((name, value) for name, value in given.items() if name.lower().startswith(PREFIX))
        return replace(
            parsed, properties=tuple(sorted((n[len(PREFIX) :].lower(), v) for n, v in named))
        )

    def place(self, snapshot: Any) -> Place | None:
        """Below the table's location, which the catalog tells."""
        if snapshot is None:
            return None
        location = snapshot.location.replace("s3a://", "s3://").replace("s3n://", "s3://")
        local = "/" + location.removeprefix("file:").lstrip("/")
        return Place(self, f"{location if location.startswith('s3://') else local}/data")

    @property
    def address(self) -> IcebergTable:
        return IcebergTable(self.catalog, self.table, self.properties, self.server)

    @property
    def patience(self) -> Patience:
        """With catalog and store."""
        system = f"the Iceberg catalog {self.catalog} with the table {self.table}"
        return Patience(self.common.patience, system=system)
