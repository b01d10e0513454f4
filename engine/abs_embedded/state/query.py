"""Queryable state: value and reducing states of a running job, read over Arrow Flight.

A client sends key columns and gets them back with a column ``value`` (null: no value). The schema's
metadata has ``version``: ``committed`` (as of the last completed checkpoint) or ``live``, and then
``dirty`` is ``true``: a failure may undo it. Committed values of one answer are all of one
checkpoint, whatever tasks have their keys; live ones are read one after the other.

Every call needs the token. Without a certificate the server listens on the loopback interface only:
the token could be read on the network.
"""

from __future__ import annotations

import hmac
import ipaddress
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pyarrow as pa
from pyarrow import flight

from abs_core.errors import AbsError, ConfigError, DataError, RefusedError, UnavailableError
from abs_core.strictjson import fields, parse
from abs_embedded.state.codecs import BYTES, FLOAT64, INT64, TEXT
from abs_embedded.state.contracts import StateBackend, StateOwner, Version
from abs_embedded.state.keygroups import encode_keys, groups_of

_BY_CODEC = {codec.name: codec for codec in (INT64, FLOAT64, TEXT, BYTES)} | {"json": TEXT}
LOOPBACK = "127.0.0.1"
_PLAIN = ("grpc", "grpc+tcp")
_CLOSED = ("grpc+tls", "grpc+unix")

SETTLING_SECONDS = 10.0
"""How long a query waits for all tasks to hear of the newest checkpoint."""


@dataclass(frozen=True)
class Published:
    """An operator's state: the backends and places of its subtasks, covering all key groups."""

    subtasks: Sequence[tuple[StateOwner, StateBackend]]

    def read(self, state: str, columns: Sequence[pa.Array], version: Version) -> pa.Array:
        """The values of the keys, typed if the state's codec is one of Arrow's.

        Committed ones are all of one checkpoint: they are read again if a task has advanced
        meanwhile. Raises UnavailableError if that fails for ``SETTLING_SECONDS``.
        """
        keys = encode_keys(columns)
        deadline = time.monotonic() + SETTLING_SECONDS
        while True:
            before = self._committed()
            values = self._read(state, keys, version)
            if version is Version.LIVE or (before is not None and before == self._committed()):
                return values
            if time.monotonic() >= deadline:
                raise UnavailableError(
                    f"The state {state!r} has not reached the same checkpoint in all of its tasks "
                    f"for {SETTLING_SECONDS:g} s.",
                    remedy="ask again; a busy task takes part in a checkpoint when it has "
                    "finished its work.",
                )
            time.sleep(0.002)

    def _committed(self) -> int | None:
        """The common committed checkpoint of all tasks, if any."""
        numbers = {backend.committed for _, backend in self.subtasks}
        return numbers.pop() if len(numbers) == 1 else None

    def _read(self, state: str, keys: list[bytes], version: Version) -> pa.Array:
        groups = groups_of(keys, self.subtasks[0][0].max_parallelism)
        raw: list[bytes | None] = [None] * len(keys)
        shape = "value:bytes"
        for place, backend in self.subtasks:
            rows = np.flatnonzero((groups >= place.groups.start) & (groups < place.groups.stop))
            values = backend.read(state, [keys[row] for row in rows], version)
            shape = dict(backend.states()).get(state, shape)
            for row, value in zip(rows.tolist(), values, strict=True):
                raw[row] = value
        return _BY_CODEC.get(shape.partition(":")[2], BYTES).decode_array(raw)


class QueryServer:
    """Serves reads of published state from its creation on; a context manager.

    Args:
        token: for clients; not empty. It is kept out of every message (I9).
        host: an address to listen on.
        port: 0 for any that is free.
        tls: certificate chain and private key, PEM; needed for a host that is not loopback.

    Raises:
        ConfigError: no token, or an open address without a certificate.
        UnavailableError: the port is taken.
    """

    def __init__(
        self, token: str, host: str = LOOPBACK, port: int = 0, tls: tuple[str, str] | None = None
    ) -> None:
        if not token:
            raise ConfigError("Queryable state needs a token.", remedy="secrets.token_urlsafe().")
        if tls is None and not _is_loopback(host):
            raise ConfigError(
                f"Queryable state would send its token in the clear on {host}.",
                remedy="listen on 127.0.0.1, or give a certificate and its key (tls).",
            )
        scheme = "grpc" if tls is None else "grpc+tls"
        self._published: dict[str, Published] = {}
        try:
            self._server = _Flight(
                f"{scheme}://{host}:{port}",
                self._published,
                middleware={"token": _TokenCheck(token)},
                tls_certificates=None if tls is None else [tls],
            )
        except (pa.ArrowException, OSError) as error:
            raise UnavailableError(
                f"Queryable state cannot listen on {host}:{port}: {error}.",
                remedy="choose another address, or a port that is free (0: any).",
            ) from error
        self.address = f"{scheme}://{host}:{self._server.port}"

    def publish(self, operator: str, subtasks: Sequence[tuple[StateOwner, StateBackend]]) -> None:
        """Publish an operator's state, in place of an earlier one under its id."""
        self._published[operator] = Published(tuple(subtasks))

    def withdraw(self, operator: str) -> None:
        """Withdraw it before its backends are closed."""
        self._published.pop(operator, None)

    def close(self) -> None:
        """Wait for current reads, then end."""
        self._server.shutdown()

    def __enter__(self) -> QueryServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class QueryClient:
    """Reads states of a running job.

    Args:
        address: ``QueryServer.address``.
        token: the server's.
        root_certificates: PEM of the server certificate's authority, if it has one.

    Raises:
        ConfigError: an invalid address, or the token would be sent unencrypted to another machine.
    """

    def __init__(self, address: str, token: str, root_certificates: str | None = None) -> None:
        self._options = flight.FlightCallOptions(
            headers=[(b"authorization", f"Bearer {token}".encode())], timeout=30.0
        )
        _check_address(address)
        self._client = flight.FlightClient(address, tls_root_certs=root_certificates)

    def read(
        self,
        operator: str,
        state: str,
        keys: pa.RecordBatch,
        version: Version = Version.COMMITTED,
    ) -> pa.Table:
        """The key columns, and ``value``; ``schema.metadata`` has the version.

        Raises:
            ConfigError: there is no such operator or state, or these cannot be its keys.
            RefusedError: the token is wrong.
            UnavailableError: no server answers, or the state was closed meanwhile.
        """
        command = json.dumps({"operator": operator, "state": state, "version": version})
        descriptor = flight.FlightDescriptor.for_command(command)
        with _mapped():
            writer, reader = self._client.do_exchange(descriptor, self._options)
            with writer:
                writer.begin(keys.schema)
                writer.write_batch(keys)
                writer.done_writing()
                return reader.read_all()

    def states(self) -> Mapping[str, Mapping[str, str]]:
        """By operator: the shapes of its states, by name."""
        with _mapped():
            (result,) = self._client.do_action("states", self._options)
        try:
            by_operator = fields(parse(result.body.to_pybytes()))
            return {operator: fields(shapes) for operator, shapes in by_operator.items()}
        except ValueError as error:
            raise UnavailableError(
                f"The server at that address does not serve queryable state: {error}.",
                remedy="give the address of the job's query server.",
            ) from error

    def close(self) -> None:
        self._client.close()


class _Flight(flight.FlightServerBase):  # type: ignore[misc]
    def __init__(self, location: str, published: dict[str, Published], **options: Any) -> None:
        super().__init__(location, **options)
        self._published = published

    def do_exchange(self, _: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        with _told():
            asked = fields(parse(descriptor.command))
            version = Version(asked["version"])
            published = self._published.get(asked["operator"])
            if published is None:
                raise ConfigError(
                    f"No state of an operator {asked['operator']!r} is published.",
                    remedy=f"choose one of {', '.join(sorted(self._published)) or 'none yet'}.",
                )
            keys = reader.read_all()
            columns = [column.combine_chunks() for column in keys.columns]
            values = published.read(asked["state"], columns, version)
            label = {"version": version.value, "dirty": str(version is Version.LIVE).lower()}
            answer = keys.append_column("value", values).replace_schema_metadata(label)
            writer.begin(answer.schema)
            writer.write_table(answer)

    def do_action(self, _: Any, action: Any) -> list[bytes]:
        if action.type != "states":
            raise flight.FlightServerError(f"There is no action {action.type!r}.")
        states = {
            operator: {name: shape for _, one in published.subtasks for name, shape in one.states()}
            for operator, published in list(self._published.items())
        }
        return [json.dumps(states).encode()]


class _TokenCheck(flight.ServerMiddlewareFactory):  # type: ignore[misc]
    def __init__(self, token: str) -> None:
        super().__init__()
        self._expected = f"Bearer {token}".encode()

    def start_call(self, _: Any, headers: Mapping[str, Sequence[str]]) -> None:
        token = next((v[0] for k, v in headers.items() if k.lower() == "authorization"), "")
        if not hmac.compare_digest(token.encode(), self._expected):
            raise flight.FlightUnauthenticatedError("The token is missing or wrong.")


def _check_address(address: str) -> None:
    """Refuse to send a token unencrypted to another machine."""
    try:
        parts = urlsplit(address)
        scheme, host = parts.scheme, parts.hostname or ""
    except ValueError:
        scheme, host = "", ""
    if scheme not in (*_PLAIN, *_CLOSED):
        raise ConfigError(
            "This is not an address of queryable state.",
            remedy="give what `QueryServer.address` says: grpc://127.0.0.1:port or "
            "grpc+tls://host:port.",
        )
    if scheme in _PLAIN and not _is_loopback(host):
        raise ConfigError(
            f"The token of queryable state would be sent in the clear to {host or 'any host'}.",
            remedy="give the server a certificate and its key (tls) and use its grpc+tls:// address; "
            "or use it on its own machine, by grpc://127.0.0.1:port.",
        )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


@contextmanager
def _told() -> Iterator[None]:
    """Map errors to Flight's."""
    try:
        yield
    except (ConfigError, DataError) as error:
        raise flight.FlightServerError(f"config: {error}") from error
    except AbsError as error:
        raise flight.FlightUnavailableError(str(error)) from error
    except (KeyError, ValueError, TypeError, pa.ArrowException) as error:
        raise flight.FlightServerError(f"config: This can't be read: {error!r}.") from error


@contextmanager
def _mapped() -> Iterator[None]:
    try:
        yield
    except (flight.FlightUnauthenticatedError, flight.FlightUnauthorizedError) as error:
        raise RefusedError(
            "The token of queryable state is wrong.", remedy="give the token of the job's server."
        ) from error
    except flight.FlightServerError as error:
        said = str(error).partition(". Detail:")[0].partition("config: ")[2]
        raise ConfigError(
            said or "The query was refused.",
            remedy="ask for a state that `states` lists, by columns of its key's types.",
        ) from error
    except (pa.ArrowException, OSError) as error:
        said = str(error).partition(". Detail:")[0]
        raise UnavailableError(
            f"Queryable state does not answer: {said}.",
            remedy="check that the job runs, and that this is its address.",
        ) from error
