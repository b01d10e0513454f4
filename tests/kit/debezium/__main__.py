"""Records the feeds: ``python -m tests.kit.debezium URL FOLDER``."""

import sys
from pathlib import Path

from tests.kit.debezium import FEEDS, record

for feed in FEEDS:
    record(sys.argv[1], Path(sys.argv[2]), feed)
