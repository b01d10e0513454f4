"""Builds the documentation as a site into ``build/site``; a link or an anchor to nowhere is an error.

    python docs/make_site.py

MkDocs reads one folder: what git has, but for tests and results, at the same places.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = ROOT / "build" / "pages"
LEFT_OUT = (":!tests", ":!benchmarks/results")


def main() -> int:
    """The exit code of mkdocs."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--", ".", *LEFT_OUT], cwd=ROOT, capture_output=True, check=True
    )
    shutil.rmtree(PAGES, ignore_errors=True)
    for name in filter(None, listed.stdout.decode().split("\0")):
        there = ROOT / name
        if there.is_file():  # one that was deleted is still listed until it is committed
            (PAGES / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(there, PAGES / name)
    quiet = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    made = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--quiet"], cwd=ROOT, env=quiet, check=False
    )
    return made.returncode


if __name__ == "__main__":
    sys.exit(main())
