"""The command ``abs``. Nothing is imported here but the release: ``abs --version`` needs no extra."""

from __future__ import annotations

import sys

from abs_clients.extras import DISTRIBUTION
from abs_core.release import RELEASE


def print_release() -> None:
    sys.stdout.write(f"{DISTRIBUTION} {RELEASE}\n")
