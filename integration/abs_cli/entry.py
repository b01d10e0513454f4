"""The console script ``abs``; names the missing extra if a package is not installed.

``abs --version`` needs no extra.
"""

from __future__ import annotations

import sys

from abs_cli import print_release
from abs_clients.extras import missing


def main() -> None:
    """Run the command; exit code 2 if a package is missing."""
    if sys.argv[1:] == ["--version"]:
        print_release()
        return
    try:
        from abs_cli.main import main as run

        run()
    except ModuleNotFoundError as error:
        lacking = missing(error, "The command abs")
        if lacking is None:
            raise
        sys.stderr.write(f"error: {lacking}\n")
        sys.exit(2)
