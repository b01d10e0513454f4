"""Serves a disk until it is unmounted, then writes its record: ``python -m tests.kit.power_loss``."""

from __future__ import annotations

import pickle
import signal
import sys
from pathlib import Path

from tests.kit.power_loss import fuse
from tests.kit.power_loss.disk import Tree

if __name__ == "__main__":
    folder, record = map(Path, sys.argv[1:])
    tree = Tree()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    try:
        fuse.serve(fuse.mount(folder), tree.answer)
    finally:
        record.write_bytes(pickle.dumps(tree.record))
