"""Systems are known by their doors only: no other code decides on one's name."""

from __future__ import annotations

import ast
import subprocess
import sys
import zipfile
from collections.abc import Iterable, Iterator
from importlib.metadata import EntryPoint
from importlib.util import find_spec
from pathlib import Path

import pytest

from abs_clients.extras import EXTRAS
from abs_core.errors import ConfigError, OptionError
from abs_sinks import door
from abs_sinks.door import SinkFormat, format_named, format_names, format_of
from tests.kit.formats import Making
from tests.roots import PRODUCT

ROOT = Path(__file__).parents[2]
OURS = [format_named(name) for name in format_names()]
NAMES = {
    each.name.removeprefix("abs-"): {each.name.removeprefix("abs-"), each.name, *each.schemes}
    for each in OURS
}
"""What each system is called."""

ON_ANOTHER = {"delta": "s3", "iceberg": "s3"}
"""Systems whose tables may lie in another one."""

ELSEWHERE = {
    "abs_clients/avro": "the registry's client is a part of Kafka's",
    "abs_sinks/lake": "tables in buckets: their data files are written as those of a bucket",
    "abs_chaos/faults.py": "reads each system's messages on the wire, to break one of them",
    "abs_chaos/places.py": "makes a topic, a bucket, for tests of one's own",
    "abs_demo": "starts servers and jobs on purpose",
    "abs_services": "starts servers by name",
    "abs_sources/files": "reads files of a bucket through the client, and has no sink",
    "abs_clients/extras.py": "names the extras of the distribution",
    "abs_spark/checkpoint/spark_files.py": "names the file systems that Spark keeps checkpoints in",
    "abs_spark/sink_spec.py": "the same",
    "abs_audit/__init__.py": "exports a class for users",
}
"""Where a name may stand, and why."""


BESIDE = {
    "abs_cli.kafka_attempts": "`abs in-doubt --attempts`: a source reads the topic, sinks know none",
    "abs_spark.postgres_types": "the columns of a table that Debezium copies",
}
"""Modules for one system that others call, and why the door does not."""


def decisions(path: Path, text: str) -> list[str]:
    """Where code outside a system's own folders names it: as a text or in an import."""
    place = path.as_posix()
    if any(part in place for part in ELSEWHERE):
        return []
    own = {system for system in NAMES if system in place}
    others = NAMES.keys() - own - {ON_ANOTHER.get(system) for system in own}
    return [f"{place}:{line}: {name}" for line, name in _named(ast.parse(text), others)]


def _named(tree: ast.AST, systems: Iterable[str] = NAMES) -> Iterator[tuple[int, str]]:
    names = {name for system in systems for name in NAMES[system]}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and node.value in names:
            yield node.lineno, str(node.value)
        if isinstance(node, ast.ImportFrom) and is_of_one(node.module or "", systems):
            yield node.lineno, str(node.module)
        if isinstance(node, ast.Import):
            named = (each.name for each in node.names)
            yield from ((node.lineno, name) for name in named if is_of_one(name, systems))


def is_of_one(module: str, systems: Iterable[str]) -> bool:
    """Whether a module is one of ours for a system, or of a library that the system's extra brings.

    A library may have a system's name, and belong to another extra: DuckDB is the audit's.
    """
    first, *rest = module.split(".")
    if module in BESIDE:
        return False
    named = "_".join(rest).split("_") if first.startswith("abs_") else [EXTRAS.get(first, "")]
    return not set(systems).isdisjoint(named)


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
        "import psycopg.rows",
        "from abs_cli.kafka_doctor import look",
    ],
)
def test_a_planted_decision_is_found(planted: str) -> None:
    assert decisions(Path("integration/abs_cli/sites.py"), planted)


def test_a_systems_folder_names_itself_and_no_other() -> None:
    planted = "import psycopg\nfrom abs_sinks.postgres import PostgresSink"
    assert decisions(Path("sinks/abs_sinks/postgres/sink.py"), planted) == []
    assert len(decisions(Path("sinks/abs_sinks/kafka/sink.py"), planted)) == 2
    assert len(decisions(Path("sinks/abs_sinks/delta/sink.py"), planted)) == 2


def test_a_library_with_the_name_of_a_new_system_may_be_imported_where_it_was() -> None:
    assert not is_of_one("duckdb", ["duckdb"])
    assert is_of_one("abs_sinks.duckdb.sink", ["duckdb"])


def test_each_place_where_a_name_may_stand_still_has_one() -> None:
    for part in ELSEWHERE:
        files = [file for package in PRODUCT for file in (ROOT / package).rglob("*.py")]
        mine = [file for file in files if part in file.as_posix()]
        assert any(list(_named(ast.parse(file.read_text()))) for file in mine), part
    for module in BESIDE:
        assert find_spec(module) is not None


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
    heavy = sorted(EXTRAS)
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
