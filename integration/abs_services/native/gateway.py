"""Base of native S3 servers: one bucket, one key, ports that stay over restarts."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import ClassVar

from abs_core.errors import ConfigError
from abs_services.buckets import BUCKET, REGION, new_keys, s3_env, takes_objects
from abs_services.contracts import Kind
from abs_services.native.lifecycle import Command, NativeService, read_private, write_private
from abs_services.native.server import ServerProcess
from abs_services.processes import free_port


@dataclass(frozen=True)
class Identity:
    """Constant over restarts; kept in the server's folder, readable by its owner only."""

    ports: dict[str, int]
    access_key: str
    secret_key: str = field(repr=False)


class NativeGateway(NativeService):
    """An S3 server in ``folder`` (made if absent), or in a temporary one, with one bucket.

    Signed requests only, by one key that may do everything. TCP on 127.0.0.1, path-style.
    ``start()`` waits until an object can be put.
    """

    kind: ClassVar[Kind] = "s3"
    port_names: ClassVar[Sequence[str]] = ("s3",)
    """The ports that the server listens on; ``s3`` is among them."""

    _identity: Identity | None = None

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._known().ports['s3']}"

    @property
    def bucket(self) -> str:
        return BUCKET

    @property
    def access_key(self) -> str:
        return self._known().access_key

    @property
    def secret_key(self) -> str:
        return self._known().secret_key

    @property
    def region(self) -> str:
        return REGION

    @property
    def env(self) -> Mapping[str, str]:
        return s3_env(self)

    @abstractmethod
    def _program(self) -> Path:
        """The server's program; ConfigError if it is missing."""

    @abstractmethod
    def _command(self, program: Path, identity: Identity) -> Command:
        """The command, after preparing its folder."""

    def _set_up(self) -> Command:
        program = self._program()
        path = self.folder / "identity.json"
        if not path.exists():
            write_private(path, asdict(_new_identity(self.port_names)))
        self._identity = Identity(**read_private(path))
        return self._command(program, self._identity)

    def _is_ready(self, server: ServerProcess) -> bool:
        return takes_objects(self)

    def _known(self) -> Identity:
        if self._identity is None:
            raise ConfigError("this S3 server was never started", remedy="call start() first.")
        return self._identity


def _new_identity(names: Sequence[str]) -> Identity:
    ports: dict[str, int] = {}
    while len(set(ports.values())) < len(names):
        ports = {name: free_port() for name in names}
    return Identity(ports, *new_keys())
