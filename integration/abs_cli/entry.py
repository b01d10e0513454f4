"""The console script ``abs``, which says which extra it needs where that is not installed."""

from __future__ import annotations

import sys

from abs_clients.extras import missing


def main() -> None:
    """Run the command; end the process with exit code 2 where a package is missing."""
    try:
        from abs_cli.main import main as run
    except ModuleNotFoundError as error:
        lacking = missing(error, "The command abs")
        if lacking is None:
            raise
        sys.stderr.write(f"error: {lacking}\n")
        sys.exit(2)
    run()
