"""Systems are known by their doors only: no other code decides on one's name."""

from __future__ import annotations

import ast
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from abs_core.errors import ConfigError, OptionError
from abs_sinks import door
from abs_sinks.door import SinkFormat, format_named, format_names, format_of
from tests.kit.formats import Making

ROOT = Path(__file__).parents[2]
PRODUCT = ("abs_core", "clients", "sinks", "sources", "integration")
OURS = [format_named(name) for name in format_names()]
SYSTEMS = {each.name.removeprefix("abs-") for each in OURS}
NAMES = SYSTEMS | {each.name for each in OURS} | {s for each in OURS for s in each.schemes}

ELSEWHERE = {
    "abs_sinks/lake": "tables in buckets: their data files are written as those of a bucket",
    "abs_chaos/faults.py": "reads each system's messages on the wire, to break one of them",
    "abs_demo": "starts servers and jobs on purpose",
    "abs_services": "starts servers by name",
    "abs_sources/files": "reads files of a bucket through the client, and has no sink",
    "abs_clients/extras.py": "names the extras of the distribution",
    "abs_spark/checkpoint/spark_files.py": "names the file systems that Spark keeps checkpoints in",
    "abs_spark/sink_spec.py": "the same",
    "abs_audit/__init__.py": "exports a class for users",
}
"""Where a name may stand, and why."""


def decisions(path: Path, text: str) -> list[str]:
    """Where code outside a system's own folders names it: as a text or in an import."""
    place = path.as_posix()
    if any(system in place for system in SYSTEMS) or any(part in place for part in ELSEWHERE):
        return []
    return [f"{place}:{line}: {name}" for line, name in _named(ast.parse(text))]


def _named(tree: ast.AST) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and node.value in NAMES:
            yield node.lineno, str(node.value)
        if isinstance(node, ast.ImportFrom) and SYSTEMS & set((node.module or "").split(".")):
            yield node.lineno, str(node.module)
        if isinstance(node, ast.Import):
            yield from (
                (node.lineno, each.name)
                for each in node.names
                if SYSTEMS & set(each.name.split("."))
            )


def test_no_code_outside_a_systems_folders_decides_on_its_name() -> None:
    files = [file for package in PRODUCT for file in sorted((ROOT / package).rglob("*.py"))]
    assert len(files) > 300
    found = [decisions(file.relative_to(ROOT), file.read_text()) for file in files]
    assert [each for one in found for each in one] == []


@pytest.mark.parametrize(
    "planted",
    [
        'match scheme:\n    case "kafka":\n        pass',
        'LOOKS = {"abs-postgres": 1}',
        'if name in ("s3", "s3a"):\n    pass',
        "def late():\n    from abs_sinks.postgres.options import PostgresOptions",
        "import abs_clients.s3.client",
    ],
)
def test_a_planted_decision_is_found(planted: str) -> None:
    assert decisions(Path("integration/abs_cli/sites.py"), planted)


def test_each_place_where_a_name_may_stand_still_has_one() -> None:
    for part in ELSEWHERE:
        files = [file for package in PRODUCT for file in (ROOT / package).rglob("*.py")]
        mine = [file for file in files if part in file.as_posix()]
        assert any(list(_named(ast.parse(file.read_text()))) for file in mine), part


def test_our_formats_are_found_in_a_zip_without_metadata(tmp_path: Path) -> None:
    """As in a zip of --py-files, made of the sources."""
    archive = tmp_path / "ours.zip"
    with zipfile.ZipFile(archive, "w") as into:
        for file in (ROOT / "sinks").rglob("*.py"):
            into.write(file, file.relative_to(ROOT / "sinks"))
    code = (
        "import importlib.metadata, sys\n"
        f"sys.path.insert(0, {str(archive)!r})\n"
        "importlib.metadata.entry_points = lambda **_: ()\n"
        "from abs_sinks import door\n"
        "assert '.zip' in door.__file__\n"
        "print(door.format_names(), door.format_of('s3').name, door.format_at('kafka://a').name)"
    )
    told = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert told.stdout == f"{[each.name for each in OURS]} abs-s3 abs-kafka\n"


def test_a_door_imports_no_library_of_its_system() -> None:
    heavy = ["boto3", "confluent_kafka", "kafka", "psycopg", "pgpq", "duckdb", "pyspark"]
    code = (
        "import sys\nfrom abs_sinks import door\n"
        "assert door.format_of('no-such-scheme') is None\n"
        f"print([name for name in {heavy} if name in sys.modules])"
    )
    told = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert told.stdout == "[]\n"


def test_no_two_formats_have_a_scheme_or_a_mark_in_common() -> None:
    for listed in ([s for f in OURS for s in f.schemes], [m for f in OURS for m in f.marks]):
        assert len(set(listed)) == len(listed)


def test_an_object_under_another_name_than_its_entry_point_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else a target's format could not be found again by the name that a job gives."""
    entry = EntryPoint("abs-other", "tests.sinks.test_door:PLANTED", door.GROUP)
    monkeypatch.setattr(door, "entry_points", lambda group: [entry])
    with pytest.raises(ConfigError, match="not a SinkFormat of that name"):
        format_named("abs-other")
    assert format_of("s3") is not None, "ours are found before another package is loaded"


PLANTED: SinkFormat = Making(lambda options, schema: None)


def test_a_format_that_is_not_there_is_refused_with_those_that_are() -> None:
    with pytest.raises(OptionError) as refused:
        format_named("abs-nothing")
    assert ", ".join(each.name for each in OURS) in refused.value.remedy
