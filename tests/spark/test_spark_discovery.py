"""Spark finds the format in an environment where only the built wheel is installed."""

from __future__ import annotations

import importlib.util
import os
import pickle
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path
from types import ModuleType

import psycopg
import pytest
from pyspark import cloudpickle
from pyspark.sql.datasource import DataSource

from tests.packaging.venvs import ROOT, wheel

_JOB = """
import os, sys
from pathlib import Path
import abs_spark
assert Path(abs_spark.__file__).is_relative_to(sys.prefix), abs_spark.__file__
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
for _ in range(2):
    frame = spark.range(5).selectExpr("id", "'w' as word", "timestamp'2026-01-01' as at")
    frame.write.format("abs-postgres").mode("append").options(
        url=os.environ["ABS_TEST_URL"], dbtable="t", job="wheel", epoch="1"
    ).save()
"""


@pytest.mark.campaign
@pytest.mark.spark
@pytest.mark.services
def test_the_wheel_in_an_empty_environment_is_found_by_spark(tmp_path: Path, database: str) -> None:
    python = _environment(tmp_path / "env", wheel(tmp_path / "dist"))
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("create table t (id bigint, word text, at timestamptz)")
        script = tmp_path / "job.py"
        script.write_text(_JOB)
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        environment |= {
            "ABS_TEST_URL": database,
            "PYSPARK_PYTHON": str(python),
            "PYSPARK_DRIVER_PYTHON": str(python),
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        ended = subprocess.run(
            [python, script], cwd=tmp_path, env=environment, capture_output=True, text=True
        )
        assert ended.returncode == 0, ended.stderr[-4000:]
        found = connection.execute("select count(*), count(distinct id) from t").fetchone()
    assert found == (5, 5)


INTEGRATION = ROOT / "integration"
FORMATS = sorted(path.name[len("pyspark_abs_") :] for path in INTEGRATION.glob("pyspark_abs_*"))
READERS = [name for name in FORMATS if (INTEGRATION / f"abs_spark/datasource/{name}.py").exists()]


@pytest.mark.parametrize("name", FORMATS)
def test_a_broken_format_is_told_to_who_uses_it_and_hides_no_other(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = f"abs_spark.datasource.{name}" if name in READERS else "abs_sinks.door"
    monkeypatch.setitem(sys.modules, module, None)  # cannot be imported any more
    found = _import_anew(f"pyspark_abs_{name}").DefaultSource
    assert found.name() == f"abs-{name}"
    pickled = cloudpickle.dumps(found)  # type: ignore[no-untyped-call]
    assert issubclass(cloudpickle.loads(pickled), DataSource)  # as Spark sends it
    with pytest.raises(ImportError, match=rf"abs-{name} cannot be used: .*{module}"):
        found({}).schema()


@pytest.mark.parametrize("name", FORMATS)
def test_where_even_the_adaptors_are_gone_discovery_goes_on_without_the_format(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "abs_spark.discovery", None)
    assert not hasattr(_import_anew(f"pyspark_abs_{name}"), "DefaultSource")


@pytest.mark.parametrize("name", FORMATS)
def test_what_is_discovered_makes_the_formats_own_class(name: str) -> None:
    found = _import_anew(f"pyspark_abs_{name}").DefaultSource
    assert found.name() == f"abs-{name}"
    pickled = cloudpickle.dumps(found)  # type: ignore[no-untyped-call]
    own = pickle.loads(pickle.dumps(cloudpickle.loads(pickled)({})))
    assert (own.name() if name == "files" else own.format.name) == f"abs-{name}"


def test_discovery_imports_no_library_of_a_format() -> None:
    """Spark discovers all formats for each session, also for one that uses none of them."""
    assert _imported_by("") == []


def test_what_is_made_for_the_commit_process_is_sent_without_a_library_of_the_format() -> None:
    """Spark makes it in a process of its own, between a run's first tasks and their commit."""
    made = "; ".join(f"pickle.dumps(pyspark_abs_{name}.DefaultSource({{}}))" for name in FORMATS)
    assert _imported_by(made) == []
    assert _imported_by("pyspark_abs_s3.DefaultSource({'path': 's3://b/p'}).schema()") != []


def test_a_start_of_a_query_has_one_name_in_the_commit_process() -> None:
    """Spark pickles what it has made once, and unpickles it for every epoch."""
    found = _import_anew("pyspark_abs_postgres").DefaultSource
    first, second = (pickle.dumps(found({})) for _ in range(2))
    names = [pickle.loads(each).query_start for each in (first, first, second)]
    assert names[0] == names[1] != names[2]
    assert None not in names


def _imported_by(code: str) -> list[str]:
    """The libraries that a new process has imported after this, with the formats discovered."""
    modules = ", ".join(f"pyspark_abs_{name}" for name in FORMATS)
    heavy = ["abs_sinks", "abs_sources", "boto3", "confluent_kafka", "kafka", "psycopg", "pyarrow"]
    lines = (
        f"import pickle, sys, {modules}",
        "from contextlib import suppress",
        "with suppress(Exception):",
        f"    {code or 'pass'}",
        f"print(*[name for name in {heavy} if name in sys.modules])",
    )
    ran = [sys.executable, "-c", "\n".join(lines)]
    return subprocess.run(ran, check=True, capture_output=True, text=True).stdout.split()


def test_a_format_imports_no_pandas() -> None:
    """pyarrow does so for the first array or scalar that is made of Python's values."""
    sinks = set(FORMATS) - {"files", "iceberg"}  # it has no sink; pyiceberg imports pandas itself
    modules = ", ".join(f"abs_sinks.{name}.sink" for name in sorted(sinks))
    code = f"import sys, {modules}\nprint('pandas' in sys.modules)"
    told = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert told.stdout.strip() == "False"


def _import_anew(name: str) -> ModuleType:
    """Not the module that others have imported."""
    source = importlib.util.find_spec(name)
    assert source is not None
    assert source.loader is not None
    module = importlib.util.module_from_spec(source)
    source.loader.exec_module(module)
    return module


def _pip(*arguments: str) -> None:
    quiet = ("--quiet", "--disable-pip-version-check")
    subprocess.run([sys.executable, "-m", "pip", *arguments, *quiet], check=True)


def _environment(folder: Path, wheel: Path) -> Path:
    """A new environment with the wheel; Spark and other libraries are lent by this one.

    A path in a ``.pth`` file lends packages, and not the editable installation: that is itself a
    ``.pth`` file, and those are read only where Python looks for site packages.
    """
    venv.create(folder, with_pip=False, symlinks=True)
    python = folder / "bin" / "python"
    _pip("--python", str(python), "install", "--no-deps", "--no-index", str(wheel))
    (site,) = folder.glob("lib/python*/site-packages")
    (site / "lent.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python
