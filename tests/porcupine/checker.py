"""Porcupine, a checker of linearizability by other hands: built once from ``check`` by Go."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from abs_core.errors import ConfigError, UnavailableError
from abs_services.paths import cache_folder

SOURCE = Path(__file__).with_name("check")
_USUAL = "/usr/local/go/bin/go"
_BUILD_DEADLINE_S = 600.0


@dataclass(frozen=True, slots=True)
class Verdict:
    """What Porcupine says.

    Args:
        kind: ``ok``, ``illegal``, or ``unknown`` where it took too long.
        line: with the figures.
    """

    kind: str
    line: str


def check(history: Path, picture: Path | None = None, *, seconds: int = 600) -> Verdict:
    """Check a history.

    Args:
        picture: where Porcupine draws a violation.
        seconds: how long it may look.

    Raises:
        AbsError: the checker cannot be built.
        AssertionError: it cannot read the history.
    """
    drawn = [] if picture is None else ["-picture", str(picture)]
    command = [str(program()), "-seconds", str(seconds), *drawn, str(history)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1, 2), done.stderr
    return Verdict(done.stdout.partition(":")[0], done.stdout.strip())


@cache
def program() -> Path:
    """The checker, in the cache folder under the digest of its source.

    Raises:
        ConfigError: there is no Go.
        UnavailableError: Go could not fetch Porcupine, or build the checker.
    """
    sources = sorted(path for path in SOURCE.iterdir() if path.suffix in (".go", ".mod", ".sum"))
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()[:16]
    built = cache_folder() / f"porcupine-{digest}" / "check"
    if built.is_file():
        return built
    go = shutil.which("go") or (_USUAL if os.access(_USUAL, os.X_OK) else None)
    if go is None:
        raise ConfigError(
            "There is no go on the PATH: the histories were not checked by Porcupine.",
            remedy="install Go 1.22 or later.",
        )
    built.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=built.parent) as scratch:
        command = [go, "build", "-o", f"{scratch}/check", "."]
        done = subprocess.run(
            command,
            cwd=SOURCE,
            capture_output=True,
            text=True,
            timeout=_BUILD_DEADLINE_S,
            check=False,
        )
        if done.returncode != 0:
            said = done.stderr.strip().splitlines()[-1:] or ["no reason"]
            raise UnavailableError(
                f"Go could not build the checker of histories: {said[0]}",
                remedy="see that Go reaches a module proxy, then try again.",
            )
        Path(scratch, "check").rename(built)
    return built
