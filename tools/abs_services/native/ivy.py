"""Fetches jars from a Maven repository by the Ivy that PySpark ships."""

from __future__ import annotations

import importlib.util
import subprocess
from collections.abc import Sequence
from pathlib import Path

from abs_core.errors import ConfigError, UnavailableError

# Ten minutes are many times what a slow line took; Ivy itself waits for ever.
_RESOLVE_DEADLINE_S = 600.0


def resolve(
    java: Path, scratch: Path, artifacts: str, dependencies: Sequence[tuple[str, str, str]]
) -> Path:
    """The folder ``scratch/jars`` with these jars and what they need at run time.

    Args:
        artifacts: what is fetched, for errors.
        dependencies: organisation, name and version of each.

    Raises:
        ConfigError: PySpark is not installed.
        UnavailableError: the jars cannot be fetched.
    """
    description = scratch / "ivy.xml"
    description.write_text(_described(dependencies))
    jars = scratch / "jars"
    command = [
        *(str(java), "-jar", str(ivy_jar(artifacts)), "-ivy", str(description)),
        *("-cache", str(scratch / "cache"), "-retrieve"),
        f"{jars}/[artifact]-[revision](-[classifier]).[ext]",
    ]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            cwd=scratch,
            timeout=_RESOLVE_DEADLINE_S,
        )
    except subprocess.TimeoutExpired as error:
        raise UnavailableError(
            f"Ivy took more than {_RESOLVE_DEADLINE_S:.0f} s to fetch {artifacts}",
            remedy="try again on a better line, or set ABS_SERVICES=docker or external.",
        ) from error
    _, name, version = dependencies[0]
    if done.returncode != 0 or not (jars / f"{name}-{version}.jar").exists():
        failed = [line.strip() for line in done.stdout.splitlines() if "UNRESOLVED" in line]
        raise UnavailableError(
            f"Ivy could not fetch {artifacts}: {'; '.join(failed[:3]) or 'no reason'}",
            remedy="check that Java reaches a Maven repository (proxy settings), then try again.",
        )
    return jars


def ivy_jar(artifacts: str = "jars") -> Path:
    """Ivy's own jar.

    Args:
        artifacts: what it fetches, for errors.
    """
    spec = importlib.util.find_spec("pyspark")
    if spec is not None and spec.submodule_search_locations:
        for jar in Path(spec.submodule_search_locations[0]).glob("jars/ivy-2.*.jar"):
            return jar
    raise ConfigError(
        f"PySpark is not installed; its Ivy fetches {artifacts}",
        remedy="pip install 'abs-sinks[spark]', or set ABS_SERVICES=docker or external.",
    )


def _described(dependencies: Sequence[tuple[str, str, str]]) -> str:
    lines = [
        f'<dependency org="{organisation}" name="{name}" rev="{version}" '
        'conf="default-&gt;master,runtime"/>'
        for organisation, name, version in dependencies
    ]
    return (
        '<ivy-module version="2.0"><info organisation="abs-sinks" module="fetched"/>'
        f"<dependencies>{''.join(lines)}</dependencies></ivy-module>"
    )
