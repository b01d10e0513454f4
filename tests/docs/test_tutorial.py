"""The tutorial does what it says: all of its commands are run as they stand, in one shell."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.packaging.test_install import OTHERS
from tests.packaging.venvs import wheel

# For its time: the snippets of the README and the how-to pages are in `make test`.
pytestmark = [
    pytest.mark.spark,
    pytest.mark.services,
    pytest.mark.timeout(1800),
]

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "tutorial" / "first-stream.md"
SET_UP = "make setup\n. .venv/bin/activate\n"


@pytest.mark.campaign
def test_the_tutorial_runs_as_it_stands(tmp_path: Path) -> None:
    page = PAGE.read_text()
    script = "".join(re.findall(r"^```bash\n(.*?)^```$", page, re.MULTILINE | re.DOTALL))
    assert page.count("```") == 2 * page.count("```bash"), "a block that is not run"
    # Set up is what this process runs in: another would download it all again.
    assert script.startswith(SET_UP)
    environment = {
        **{name: text for name, text in os.environ.items() if not name.startswith("ABS_")},
        "ABS_CACHE": str(tmp_path / "cache"),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }
    folder = tmp_path / "clone"
    folder.mkdir()
    try:
        done = subprocess.run(
            ["bash", "-eu", "-c", script.removeprefix(SET_UP)],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=800,
        )
        assert done.returncode == 0, (done.stdout, done.stderr)
    finally:
        down = [str(Path(sys.executable).with_name("abs")), "down", "--delete-data"]
        subprocess.run(down, env=environment, capture_output=True, check=False)
    counts = re.findall(r"^(missing|duplicate) +(\d+)", done.stdout, re.MULTILINE)
    assert counts == [("missing", "0"), ("duplicate", "0"), ("missing", "0"), ("duplicate", "1")]
    assert re.findall(r"^(?:NOT )?CLEAN", done.stdout, re.MULTILINE) == ["CLEAN", "NOT CLEAN"]
    assert "found it" in done.stdout
    assert not (folder / "tutorial").exists()


@pytest.mark.campaign
def test_the_wheels_are_installed_by_the_pages_lines(tmp_path: Path) -> None:
    """With the pip that Python brings: 23.2 of Python 3.11 takes not all that newer ones take."""
    wheel(tmp_path)
    for name in ("abs-sinks-cli", "abs-sinks-kit", "abs-sinks-testing"):
        built = wheel(tmp_path / name, OTHERS[name])
        built.rename(tmp_path / built.name)
    lines = re.findall(r"^    (.*)", PAGE.read_text().partition("## 2.")[0], re.MULTILINE)
    assert len(lines) == 3
    lines[0] = lines[0].replace("python3", sys.executable)
    script = "\n".join([*lines, ".venv/bin/abs --version", ".venv/bin/abs status"])
    environment = {
        **{name: text for name, text in os.environ.items() if not name.startswith("ABS_")},
        "ABS_CACHE": str(tmp_path / "cache"),
        "PIP_QUIET": "1",
    }
    done = subprocess.run(
        ["bash", "-u", "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert done.stdout.startswith("abs-sinks "), (done.stdout, done.stderr)
    assert "not started" in done.stdout
