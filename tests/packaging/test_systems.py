"""What a system of this package has beside its folder; a new one is told what it lacks."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from abs_sinks.door import SinkFormat, format_named, format_names

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
EXTRAS = PROJECT["project"]["optional-dependencies"]
WHEEL = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]


def lacks(kind: SinkFormat) -> Iterator[str]:
    """What is missing, and where to add it."""
    system = kind.name.removeprefix("abs-")
    module = f"pyspark_abs_{system}"
    if not _is_discovered(module, kind.name):
        yield f"integration/{module}/__init__.py, in which Spark finds {kind.name}"
    if f"integration/{module}" not in WHEEL:
        yield f"pyproject.toml: integration/{module} in the packages of the wheel"
    if system not in EXTRAS:
        yield f"pyproject.toml: an extra {system}, with its libraries"
    if system not in EXTRAS["dev"][0].partition("[")[2].rstrip("]").split(","):
        yield f"pyproject.toml: {system} in the extra dev"
    if f"\n## `{kind.name}`" not in _page("docs/reference/options.md"):
        yield f"docs/make_options.py: a section of the options of {kind.name}"
    if kind.buries and f"`{kind.name}`" not in _page("docs/reference/dead-letters.md"):
        yield f"docs/reference/dead-letters.md: a row of {kind.name}"
    if system not in _page("README.md").lower():
        yield "README.md: the system"


def _is_discovered(module: str, name: str) -> bool:
    try:
        return bool(import_module(module).DefaultSource.name() == name)
    except ModuleNotFoundError:
        return False


def _page(path: str) -> str:
    return (ROOT / path).read_text()


@pytest.mark.parametrize("name", format_names())
def test_a_system_lacks_nothing(name: str) -> None:
    assert list(lacks(format_named(name))) == []


def test_each_thing_that_a_new_system_lacks_is_told() -> None:
    class Planted(type(format_named("abs-s3"))):  # type: ignore[misc]
        name = "abs-planted"

    told = list(lacks(Planted()))
    assert [line.partition(":")[0] for line in told] == [
        "integration/pyspark_abs_planted/__init__.py, in which Spark finds abs-planted",
        *["pyproject.toml"] * 3,
        "docs/make_options.py",
        "docs/reference/dead-letters.md",
        "README.md",
    ]
