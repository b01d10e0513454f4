"""The pytest plugin as people get it: the wheels in an environment, and a project there."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.packaging.test_install import OTHERS, project
from tests.packaging.venvs import CLIENTS, ROOT, python_with, wheel

EXAMPLE = ROOT / "examples" / "try_kafka"
DOOR = ROOT / "docs" / "how-to" / "try-your-job.md"
SPARK = ("pyspark==4.1.1", "setuptools==80.9.0", "numpy==2.1.3", "pandas==2.3.3", "pyarrow==21.0.0")
"""A release for which Spark's own Kafka sink can be had."""

pytestmark = [
    pytest.mark.campaign,
    pytest.mark.long,
    pytest.mark.services,
    pytest.mark.spark,
    pytest.mark.timeout(1800),
]


NAMES = ("abs-sinks-cli", "abs-sinks-kit", "abs-sinks-testing")


def needed() -> list[str]:
    """What the wheels need, but for themselves."""
    every = [*CLIENTS, *(one for name in NAMES for one in project(OTHERS[name])["dependencies"])]
    return sorted({one for one in every if not one.startswith("abs-sinks")})


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The Python of an environment into which pip has put the wheels, without any index."""
    folder = tmp_path_factory.mktemp("wheels")
    wheel(folder)
    for name in NAMES:
        shutil.copy(wheel(folder / name, OTHERS[name]), folder)
    python = python_with(*SPARK, *needed(), of="plugin")
    pip(python, "uninstall", "--yes", "abs-sinks", *NAMES)
    pip(python, "install", "--no-index", "--find-links", str(folder), "abs-sinks-testing")
    yield python
    pip(python, "uninstall", "--yes", "abs-sinks", *NAMES)


def pip(python: Path, *words: str) -> None:
    done = subprocess.run(
        [python, "-m", "pip", "--quiet", "--disable-pip-version-check", *words],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_the_example_says_no_to_sparks_own_kafka_sink_and_yes_to_ours(
    python: Path, tmp_path: Path
) -> None:
    shutil.copytree(EXAMPLE, tmp_path / "project")
    environment = {
        name: text
        for name, text in os.environ.items()
        # Of these tests' own Spark, which is another release.
        if not name.startswith(("PYTHON", "PYSPARK", "PYTEST", "SPARK", "JDK_", "JAVA_TOOL"))
    }
    done = subprocess.run(
        [python, "-m", "pytest", "-p", "no:cacheprovider", "--tb=short", "-q", "-ra"],
        cwd=tmp_path / "project",
        env={**environment, "SPARK_LOCAL_IP": "127.0.0.1", "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
        timeout=1500,
    )
    assert re.search(r"1 failed, 1 passed", done.stdout), done.stdout + done.stderr
    assert re.search(r"FAILED .*\[kafka\] .*not exactly once: 20 duplicate", done.stdout)


def test_the_lines_of_the_page_say_no_to_sparks_own_kafka_sink_and_yes_to_ours(
    python: Path, tmp_path: Path
) -> None:
    """As they stand, but for the first one, which the environment of this module has done."""
    blocks = re.findall(r"^```bash\n(.*?)^```$", DOOR.read_text(), re.MULTILINE | re.DOTALL)
    first, _, rest = blocks[0].partition("\n")
    assert first == f"pip install abs-sinks-testing {SPARK[0]}"
    assert len(blocks[0].splitlines()) == 10
    environment = {
        **{
            n: t for n, t in os.environ.items() if not n.startswith(("PY", "SPARK", "JDK_", "ABS_"))
        },
        "PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}",
        "ABS_CACHE": str(tmp_path / "cache"),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    script = f"{rest}\necho code $?\n{blocks[1]}\necho code $?\nabs down --delete-data"
    folder = tmp_path / "empty"
    folder.mkdir()
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=1500,
    )
    codes = re.findall(r"^code (\d)$", done.stdout, re.MULTILINE)
    assert codes == ["1", "0"], done.stdout + done.stderr
    assert re.search(r"^Not exactly once: \d+ rows doubled", done.stdout, re.MULTILINE)
    assert re.search(r"^Exactly once\. 3 x SIGKILL", done.stdout, re.MULTILINE)
    assert "Not exactly once" in (folder / "kafka.svg").read_text()
    assert "Not exactly once" not in (folder / "once.svg").read_text()


def test_the_example_is_short() -> None:
    lines = [line for file in EXAMPLE.glob("*.py") for line in file.read_text().splitlines()]
    assert len(lines) <= 62
