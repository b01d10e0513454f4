"""A format for tests, of sinks that they make."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

from abs_core.contracts import Committer, Inventory, Sink
from abs_core.model import Guarantee
from abs_sinks.door import SinkFormat


class Making(SinkFormat):
    """Its sinks are what ``make`` returns; each object is a format of its own."""

    name = "fake"
    schemes = ("fake",)

    def __init__(self, make: Callable[[Any, pa.Schema], Any], where: str = "a fake") -> None:
        self._make = make
        self._where = where

    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def parse(self, given: Mapping[str, str]) -> Any:
        raise NotImplementedError

    def at(self, url: str, table: str | None = None, stateschema: str = "abs") -> Any:
        raise NotImplementedError

    def sink(self, options: Any, schema: pa.Schema, *, alone: bool = True) -> Sink:
        made: Sink = self._make(options, schema)
        return made

    def administer(self, options: Any) -> tuple[Inventory, Committer]:
        raise NotImplementedError

    def guarantee(self, options: Any) -> Guarantee:
        return self.sink(options, pa.schema([])).guarantee()

    def where(self, options: Any) -> str:
        return self._where
