"""A writer of the mix: a job that writes epoch after epoch to one table, until it is killed.

python -m tests.sinks.lake.mixed_writer KIND OPTIONS FOLDER NUMBER [EPOCHS]
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from abs_core.patience import Patience
from abs_sinks.delta import DeltaOptions, DeltaSink
from abs_sinks.iceberg import IcebergOptions, IcebergSink
from abs_testing import SCHEMA, Row
from abs_testing.engine import Run

SINKS: dict[str, Any] = {
    "delta": (DeltaSink, DeltaOptions),
    "iceberg": (IcebergSink, IcebergOptions),
}
PARTS, ROWS = 2, 3


def rows_of(number: int, epoch: int, part: int) -> list[Row]:
    first = (number * 1_000_000 + epoch) * 10 + part * ROWS
    return [(id_, f"w{number}") for id_ in range(first, first + ROWS)]


def ids_of(number: int, epochs: int) -> list[int]:
    """All that a writer has written in its epochs."""
    return [
        id_
        for epoch in range(epochs)
        for part in range(PARTS)
        for id_, _ in rows_of(number, epoch, part)
    ]


def done_file(folder: Path, number: int) -> Path:
    """Holds the number of epochs that the engine knows to be done: the last one may be replayed."""
    return folder / f"{number}.done"


def main(kind: str, given: str, folder: str, number: str, until: str = "") -> None:
    sink_of, options_of = SINKS[kind]
    sink = sink_of(options_of.parse(json.loads(given)), SCHEMA)
    run = Run(sink, f"writer-{number}", patience=Patience(seconds=60.0))
    done = done_file(Path(folder), int(number))
    epoch = int(done.read_text()) if done.exists() else 0
    while not until or epoch < int(until):
        run.epoch(epoch, *(rows_of(int(number), epoch, part) for part in range(PARTS)))
        epoch += 1
        aside = done.with_suffix(".new")
        aside.write_text(str(epoch))
        aside.rename(done)
    sink.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
