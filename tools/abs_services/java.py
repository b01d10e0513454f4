"""Finds the Java that Spark and the Kafka broker run on."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path

from abs_core.errors import ConfigError

MIN_RELEASE = 17

_REMEDY = (
    f"install a Java runtime {MIN_RELEASE} or newer (Debian: apt-get install "
    "openjdk-17-jre-headless), or set JAVA_HOME to one."
)


def find_java() -> Path:
    """``$JAVA_HOME/bin/java`` or the one on the PATH; ConfigError if it is missing or too old."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=str(Path(home) / "bin")) if home else shutil.which("java")
    if found is None:
        raise ConfigError(
            f"Java {MIN_RELEASE} or newer is needed, and there is no java in {home or 'the PATH'}",
            remedy=_REMEDY,
        )
    return _new_enough(found)


@cache  # an error is not kept
def _new_enough(command: str) -> Path:
    done = subprocess.run([command, "-version"], capture_output=True, text=True, check=False)
    release = java_release(done.stderr + done.stdout)
    if release is None or release < MIN_RELEASE:
        problem = "does not tell its version" if release is None else f"is Java {release}"
        raise ConfigError(
            f"Java {MIN_RELEASE} or newer is needed, and {command} {problem}", remedy=_REMEDY
        )
    return Path(command)


def java_release(said: str) -> int | None:
    """The release in the output of ``java -version``: 17 for ``17.0.15``, 8 for ``1.8.0_392``."""
    match = re.search(r'version "(?:1\.)?(\d+)', said)
    return int(match[1]) if match else None
