"""Which schema of the registry a column is written with."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import TypeVar

import pyarrow as pa

from abs_clients.avro.registry import Registry, registry
from abs_clients.avro.schema import Node, parsed
from abs_core.errors import SchemaError
from abs_core.patience import Patience
from abs_sinks.kafka.avro.derive import avro_of
from abs_sinks.kafka.avro.encode import check_fit
from abs_sinks.kafka.options import KafkaOptions
from abs_sinks.refusals import MisfitError

T = TypeVar("T")

Ids = Mapping[str, int]
"""The schema's id of each column."""


class Chooser:
    """Chooses the schemas of a sink's columns, and tells whether one fits.

    Args:
        types: of the columns that are encoded.
    """

    def __init__(self, options: KafkaOptions, types: Mapping[str, pa.DataType]) -> None:
        self._options = options
        self._types = types
        self._patience = Patience(
            options.common.patience, system=f"the schema registry at {options.registry.url}"
        )

    @property
    def _registry(self) -> Registry:
        return registry(self._options.registry)

    def node(self, number: int) -> Node:
        """The schema of an id."""
        return self._ask(partial(self._registry.node, number))

    def check(self, ids: Ids) -> None:
        """Raise SchemaError if a schema does not fit its column."""
        for column, number in ids.items():
            self._check(self.node(number), column, f"schema {number}")

    def ids(self, *, register: bool) -> Ids:
        """What the registry has now.

        Args:
            register: whether a missing schema may be registered; else it is an error.

        Raises:
            SchemaError: there is no such schema, or it does not fit.
            TargetError: the registry does not answer, or refuses.
        """
        return {column: self._id(column, register=register) for column in self._types}

    def _id(self, column: str, *, register: bool) -> int:
        formats = self._options.formats
        subject = formats.subject(column, self._options.topic)
        text = formats.schema(column)
        found = self._ask(partial(self._registry.latest, subject))
        if text is None:
            if found is not None and (not register or self._fits(found.node, column)):
                what = f"version {found.version} of {subject} (schema {found.id})"
                self._check(found.node, column, what)
                return found.id
            text = self._derived(column, None if found is None else found.node)
        else:
            self._check(parsed(text), column, f"{column}.schema")
            if found is not None and found.node == parsed(text):
                return found.id  # some registries look for the very text only
            number = self._ask(partial(self._registry.lookup, subject, text))
            if number is not None:
                return number
        if not register:
            raise SchemaError(
                f"The registry at {self._options.registry.url} has no such schema under {subject}.",
                remedy=f"register it there, or set registry.register=true: {text}",
            )
        return self._ask(partial(self._registry.register, subject, text))

    def _derived(self, column: str, before: Node | None) -> str:
        """A schema of the column's type, under the name that its record has so far."""
        name = re.sub(r"\W", "_", f"{self._options.topic}_{column}", flags=re.ASCII)
        name = name if not name[0].isdigit() else f"_{name}"
        name = before.name if before is not None and before.kind == "record" else name
        try:
            return json.dumps(avro_of(self._types[column], name, column))
        except MisfitError as error:
            raise SchemaError(f"{error.reason}.", remedy=f"{error.remedy}.") from error

    def _fits(self, node: Node, column: str) -> bool:
        try:
            check_fit(node, self._types[column], column)
        except MisfitError:
            return False
        return True

    def _check(self, node: Node, column: str, what: str) -> None:
        try:
            check_fit(node, self._types[column], column)
        except MisfitError as error:
            raise SchemaError(
                f"The column {column} cannot be written with {what}: {error.reason}.",
                remedy=f"{error.remedy}.",
            ) from error

    def _ask(self, call: Callable[[], T]) -> T:
        return self._patience.retry(call)
