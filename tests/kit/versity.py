"""A second S3 server, by other hands than the first: versitygw over a folder, made by ``go install``.

    python -m tests.kit.versity      # builds it into the cache folder; takes some minutes

It needs a Go toolchain (1.25 or later) and a Go module proxy. ``ABS_VERSITYGW``, or a ``versitygw`` on
the PATH, is taken instead where it is there. Only tests use it: what the S3 sink promises must not
rest on one server's habits.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from abs_core.errors import ConfigError, UnavailableError
from abs_services.contracts import BUCKET, REGION
from abs_services.native.lifecycle import Command
from abs_services.native.s3 import NativeS3, ServerIdentity
from abs_services.paths import cache_folder

VERSION = "v1.8.0"
MODULE = "github.com/versity/versitygw/cmd/versitygw"
_BUILD_DEADLINE_S = 1800.0


class NativeVersity(NativeS3):
    """versitygw: objects are files of its folder."""

    stop_deadline_s = 5.0
    port_names = ("s3",)

    def _set_up(self) -> Command:
        program = find_versitygw()
        identity = self._keep(ServerIdentity, lambda: ServerIdentity.new(self.port_names))
        # Metadata beside the data: not every file system has attributes.
        data, beside = self.folder / "data", self.folder / "metadata"
        (data / BUCKET).mkdir(parents=True, exist_ok=True)
        beside.mkdir(exist_ok=True)
        argv = [
            *(str(program), "--port", f"127.0.0.1:{identity.ports['s3']}", "--region", REGION),
            *("--quiet", "--keep-alive", "posix", "--sidecar", str(beside), str(data)),
        ]
        # Not as arguments: everyone on the machine can read those.
        keys = {"ROOT_ACCESS_KEY": identity.access_key, "ROOT_SECRET_KEY": identity.secret_key}
        return Command(argv, cwd=self.folder, env=keys)

    def _paths_outside(self) -> Sequence[Path]:
        return ()


def find_versitygw() -> Path:
    """The program; ConfigError where there is none."""
    named = os.environ.get("ABS_VERSITYGW") or shutil.which("versitygw")
    found = Path(named) if named else _built()
    if not found.is_file():
        raise ConfigError(
            f"there is no versitygw: neither {found} nor one on the PATH",
            remedy="run `python -m tests.kit.versity` (it needs Go), or set ABS_VERSITYGW.",
        )
    return found


def build_versitygw() -> Path:
    """The program in the cache folder, made where it is not there yet.

    Raises:
        ConfigError: there is no Go.
        UnavailableError: Go could not fetch or build it.
    """
    program = _built()
    if program.is_file():
        return program
    go = shutil.which("go")
    if go is None:
        raise ConfigError("there is no go on the PATH", remedy="install Go 1.25 or later.")
    program.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=program.parent) as scratch:
        command = [go, "install", f"{MODULE}@{VERSION}"]
        try:
            done = subprocess.run(
                command,
                env={**os.environ, "GOBIN": scratch},
                capture_output=True,
                text=True,
                check=False,
                timeout=_BUILD_DEADLINE_S,
            )
        except subprocess.TimeoutExpired as error:
            raise UnavailableError(
                f"Go took more than {_BUILD_DEADLINE_S:.0f} s to build versitygw"
            ) from error
        if done.returncode != 0:
            said = done.stderr.strip().splitlines()[-1:] or ["no reason"]
            raise UnavailableError(
                f"Go could not build versitygw {VERSION}: {said[0]}",
                remedy="see that Go reaches a module proxy, then try again.",
            )
        (Path(scratch) / program.name).rename(program)
    return program


def _built() -> Path:
    return cache_folder() / f"versitygw-{VERSION}" / "versitygw"


if __name__ == "__main__":
    print(build_versitygw())
