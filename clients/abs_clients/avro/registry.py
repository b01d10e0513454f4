"""The schema registry, through confluent-kafka's client; its exceptions are mapped here, once.

Its wire format is a zero byte, the schema's id in four bytes, then the Avro bytes:
https://docs.confluent.io/platform/current/schema-registry/fundamentals/serdes-develop/index.html#wire-format
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.error import OAuthTokenError, SchemaRegistryError
from numpy.typing import NDArray

from abs_clients.avro.schema import Node, parsed
from abs_clients.avro.settings import RegistrySettings
from abs_clients.causes import name_open_files
from abs_clients.per_process import PerProcess
from abs_clients.readfiles import ReadFiles
from abs_core.errors import (
    AbsError,
    OptionError,
    RefusedError,
    SchemaError,
    UnavailableError,
)

TIMEOUT_S = 10.0
"""The longest time of one request; the job's ``patience`` repeats it."""

_BUSY = (408, 425, 429)
_MISSING = range(40400, 40500)
"""Codes of a subject, version or schema that is missing; another 404 is a path that is."""


@dataclass(frozen=True, slots=True)
class Registered:
    """A schema as the registry has it."""

    id: int
    version: int
    text: str
    node: Node


class Registry:
    """Asks one registry. Schemas by id are cached: they never change. Use ``registry``.

    Every call raises ``UnavailableError`` where the registry does not answer, ``RefusedError`` where it
    does not allow it, and ``OptionError`` where its client does not take the settings.
    """

    def __init__(self, settings: RegistrySettings) -> None:
        self._settings = settings
        paths = [text for name, text in settings.given.items() if name.endswith(".location")]
        self._files = ReadFiles(paths, self._new_client)
        self._made: SchemaRegistryClient | None = None
        self._nodes: dict[int, Node] = {}

    def node(self, number: int) -> Node:
        """The schema of an id.

        Raises:
            SchemaError: there is none, or it is not Avro.
        """
        if number not in self._nodes:
            with self._asking(f"reading schema {number}", f"There is no schema {number}"):
                schema = self._client.get_schema(number)
            self._nodes[number] = self._node(schema, f"Schema {number}")
        return self._nodes[number]

    def latest(self, subject: str) -> Registered | None:
        """The newest version of a subject; None if there is no such subject.

        Raises:
            SchemaError: it is not Avro.
        """
        client: Any = self._client
        client.clear_latest_caches()  # the client would answer as it did before, for ever
        try:
            with self._asking(f"reading the newest schema of {subject}", ""):
                newest = client.get_latest_version(subject)
        except SchemaError:
            return None
        node = self._node(newest.schema, f"The newest schema of {subject}")
        return Registered(newest.schema_id, newest.version, newest.schema.schema_str, node)

    def lookup(self, subject: str, text: str) -> int | None:
        """The id of exactly this schema under a subject; None if it is not there."""
        try:
            with self._asking(f"looking for a schema of {subject}", ""):
                found: Any = self._client.lookup_schema(subject, Schema(text, "AVRO"))
        except SchemaError:
            return None
        return int(found.schema_id)

    def register(self, subject: str, text: str) -> int:
        """Register a schema, which changes nothing if it is there already; its id.

        Raises:
            SchemaError: it is not compatible with the versions that are there.
        """
        with self._asking(f"registering a schema for {subject}", f"{subject} cannot be registered"):
            return int(self._client.register_schema(subject, Schema(text, "AVRO")))

    def forget(self) -> None:
        """Ask anew from now on."""
        self._nodes = {}
        if self._made is not None:
            client: Any = self._made
            client.clear_caches()

    def close(self) -> None:
        """Forget everything."""
        self._made = None
        self._nodes = {}

    @property
    def _client(self) -> SchemaRegistryClient:
        if self._files.replaced():
            self._made = None
        if self._made is None:
            self._made = self._new_client()
        return self._made

    def _new_client(self) -> SchemaRegistryClient:
        settings: dict[str, Any] = {"timeout": TIMEOUT_S, "max.retries": 0, **self._settings.given}
        if "bearer.auth.credentials.source" in settings:
            # The client asks for it; registries other than Confluent's cloud do not.
            settings.setdefault("bearer.auth.logical.cluster", "")
        try:
            return SchemaRegistryClient.new_client(settings)
        except (ValueError, TypeError, OSError) as error:
            raise OptionError(
                f"The registry's client does not take its settings: {error}.",
                remedy="correct the options registry.*; files must be there on every executor.",
            ) from error

    def _node(self, schema: Any, name: str) -> Node:
        if schema.schema_type not in (None, "AVRO"):
            raise SchemaError(
                f"{name} is of the format {schema.schema_type}, not Avro.",
                remedy="name another subject or topic; other formats are not supported.",
            )
        return parsed(schema.schema_str, tuple(self._references(schema, {})))

    def _references(self, schema: Any, seen: dict[tuple[str, int], None]) -> Iterator[str]:
        """The texts of the schemas that this one names, each after those that it names itself."""
        for reference in schema.references or ():
            key = (reference.subject, reference.version)
            if key in seen:
                continue
            seen[key] = None
            name = f"version {reference.version} of {reference.subject}"
            with self._asking(f"reading {name}", f"There is no {name}, which a schema refers to"):
                registered: Any = self._client.get_version(reference.subject, reference.version)
            yield from self._references(registered.schema, seen)
            yield registered.schema.schema_str

    @contextmanager
    def _asking(self, doing: str, missing: str) -> Iterator[None]:
        """Map the client's exceptions."""
        try:
            yield
        except (SchemaRegistryError, OAuthTokenError) as error:
            raise self._error(error, doing, missing) from error
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise RefusedError(
                f"What answers at {self._settings.url} is no schema registry: {doing}: "
                f"{type(error).__name__}.",
                remedy="check registry.url: it ends where /subjects and /schemas begin "
                "(Apicurio: /apis/ccompat/v7).",
            ) from error
        except Exception as error:
            # The client's transport is another library in each release; it raises its own.
            if type(error).__module__.partition(".")[0] not in (
                "httpx",
                "httpx2",
                "httpcore2",
                "ssl",
            ):
                raise
            raise name_open_files(
                UnavailableError(
                    f"The schema registry at {self._settings.url} did not answer: {doing}: {error}.",
                    remedy="check that it runs, and that every executor reaches it.",
                ),
                error,
            ) from error

    def _error(self, error: Any, doing: str, missing: str) -> AbsError:
        where = f"The schema registry at {self._settings.url}"
        if isinstance(error, OAuthTokenError):
            return UnavailableError(
                f"{where}: no token from {self._settings.bearer_auth_issuer_endpoint_url}: {doing}.",
                remedy="check the options registry.bearer.auth.*, and that the token server answers.",
            )
        status = error.http_status_code
        said = f"{doing}: {error.error_message} (HTTP {status})"
        if status == 404 and error.error_code not in _MISSING:
            return RefusedError(
                f"{where} has no such path: {said}.",
                remedy="check registry.url: it ends where /subjects and /schemas begin "
                "(Apicurio: /apis/ccompat/v7).",
            )
        if status == 404:
            return SchemaError(
                f"{missing} at {self._settings.url}: {error.error_message}.",
                remedy="check registry.url, and whether the schema was deleted.",
            )
        if status in (401, 403):
            return RefusedError(
                f"{where} refused the login or the right: {said}.",
                remedy="check the options registry.basic.auth.* or registry.bearer.auth.*.",
            )
        if status in (409, 422):
            return SchemaError(
                f"{missing} at {self._settings.url}: {error.error_message}.",
                remedy="register a schema that is compatible with the versions that are there.",
            )
        if status >= 500 or status in _BUSY:
            return UnavailableError(f"{where} has trouble: {said}.", remedy="look at its log.")
        return RefusedError(f"{where} refused: {said}.", remedy="check registry.url.")


_registries: PerProcess[RegistrySettings, Registry] = PerProcess(Registry, at_exit=False)


def registry(settings: RegistrySettings) -> Registry:
    """This process's registry with these settings."""
    return _registries.of(settings)


HEADER_BYTES = 5


def header_of(number: int) -> bytes:
    """What stands before the bytes of a record that was written with the schema of this id."""
    return b"\0" + number.to_bytes(4, "big")


def ids_of(data: NDArray[np.uint8], start: Any, end: Any) -> NDArray[np.int64]:
    """The schema's id of each record; -1: it has none. ``data`` goes on for five bytes at least."""
    at = start[:, None] + np.arange(HEADER_BYTES)
    head = data[np.minimum(at, len(data) - 1)].astype(np.int64)
    number = head[:, 1] << 24 | head[:, 2] << 16 | head[:, 3] << 8 | head[:, 4]
    return np.where((end - start >= HEADER_BYTES) & (head[:, 0] == 0), number, -1)
