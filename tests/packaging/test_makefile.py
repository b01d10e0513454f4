"""What the commands of the Makefile pass on."""

from __future__ import annotations

import os
import subprocess

from tests.packaging.venvs import ROOT


def test_compiled_modules_are_kept_whatever_the_shell_says() -> None:
    """Hundreds of short processes import the same ones."""
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    shown = subprocess.run(
        ["make", "--silent", "--eval=shown: ; @env", "shown"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert "PYSPARK_PYTHON=" in shown
    assert "PYTHONDONTWRITEBYTECODE" not in shown
