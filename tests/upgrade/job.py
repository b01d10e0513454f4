"""A job's process, by the code that is first on the path: that of a release, or today's.

    PYTHONPATH=315a560.zip:315a560.zip/sinks:... python job.py

It reads one life a line as JSON, forks a process that lives it, and answers with how that ended: 0, an
exit code, or minus a signal. So Python and the sinks are imported once. It uses only what every release
has; what an epoch holds stands here.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

EPOCHS: tuple[tuple[Sequence[tuple[int, str]], ...], ...] = (
    ([(1, "a"), (2, "b")], [(3, "c")]),
    ([(4, "d"), (5, "e")], [(6, "f"), (7, "g")]),
    ([(8, "h")], []),
)
JOB = "upgraded"
ROWS, KEYS = 3_000, 7
"""Of the job of the embedded runtime."""
PER_CHECKPOINT = 200
"""Rows that a split of it gives for each checkpoint."""


def new_sink(life: Mapping[str, Any]) -> Any:
    """The sink that a life names."""
    from abs_core.testing.harness import SCHEMA

    kind, given, co_commit = life["sink"], life["given"], life["own_register"]
    if kind == "postgres":
        from abs_sinks.postgres.options import PostgresOptions
        from abs_sinks.postgres.sink import PostgresSink

        return PostgresSink(PostgresOptions.parse(given), SCHEMA, co_commit=co_commit)
    if kind == "kafka":
        from abs_sinks.kafka.options import KafkaOptions

        # 315a560 has it among its sinks.
        old = "abs_sinks.kafka.testing"
        kit = import_module(old if find_spec(old) else "tests.kit.kafka")
        return kit.KeyedSink(KafkaOptions.parse(given), kit.KEYED, co_commit=co_commit)
    from abs_sinks.s3.options import S3Options
    from abs_sinks.s3.sink import S3Sink

    return S3Sink(S3Options.parse(given), SCHEMA)


def live(life: Mapping[str, Any]) -> None:
    """Start, and work through the epochs that the engine does not hold for done."""
    from abs_core import crash
    from abs_core.registers.file import FileRegister
    from abs_core.testing.engine import Run

    folder = Path(life["folder"])
    sink = new_sink(life)
    store = None if life["own_register"] else FileRegister(folder / "register")
    # 315a560 has it in another module.
    module = "abs_core.patience" if find_spec("abs_core.patience") else "abs_core.cell"
    patience = import_module(module).Patience(seconds=60.0)
    run = Run(sink, JOB, store=store, patience=patience)
    for epoch, parts in enumerate(EPOCHS):
        if (folder / f"{epoch}.done").exists():
            continue
        if epoch == life["epoch"]:
            crash.arm(life["crash"])
        run.commit(epoch, run.tasks(epoch, *parts))
        (folder / f"{epoch}.done").touch()
    sink.close()


def backend_of(name: str, options: Any, folder: Path) -> Any:
    """What makes the keyed state's backends."""
    from abs_core.state.heap import HeapBackend
    from abs_core.state.rocks import RocksBackends

    if name in ("heap", "rocksdb"):
        return HeapBackend if name == "heap" else RocksBackends(folder / "rocks")
    word = {"2pc": "two_phase"}.get(name, name)
    # 315a560 has it in the sink, and takes the sink's options.
    old = f"abs_sinks.postgres.state_{name}"
    if find_spec(old):
        return getattr(import_module(old), f"{word}_backends")(options)
    new = import_module(f"abs_stores.postgres.{word}")
    return getattr(new, f"{word}_backends")(options.server, options.stateschema)


class Paced:
    """A source whose reader waits for checkpoints: none of them depends on how fast the machine is.

    Args:
        committed: the checkpoints that this process has committed; grows.
    """

    def __init__(self, tables: Sequence[Any], committed: list[int]) -> None:
        from abs_core.runtime.tables import TableSource

        self._inner = TableSource(tables, 10)
        self._committed = committed

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def open(self, split: Any) -> Any:
        return PacedReader(self._inner.open(split), self._committed)


class PacedReader:
    """Reads on only where as many checkpoints are committed as belong to what was read."""

    def __init__(self, inner: Any, committed: list[int]) -> None:
        self._inner, self._committed, self._read = inner, committed, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def read(self, timeout_seconds: float) -> Any:
        if self._read > PER_CHECKPOINT * len(self._committed) + PER_CHECKPOINT:
            time.sleep(timeout_seconds)
            return None
        batch = self._inner.read(timeout_seconds)
        self._read += 0 if batch is None else batch.num_rows
        return batch


def count(row: Any, at: Any) -> list[Any]:
    """What each row is the n-th of, by its key."""
    n = (at.states["count"].get(at.key) or 0) + 1
    at.states["count"].put(at.key, n)
    return [{"id": row["id"], "value": f"{row['key']}:{n}"}]


def live_embedded(life: Mapping[str, Any]) -> None:
    """Run the job of the embedded runtime to its end."""
    import pyarrow as pa

    from abs_core import crash
    from abs_core.runtime import Graph, Job, Settings
    from abs_core.state.codecs import INT64
    from abs_core.state.local_store import LocalSnapshotStore
    from abs_core.testing.harness import SCHEMA
    from abs_sinks.postgres.options import PostgresOptions
    from abs_sinks.postgres.sink import PostgresSink

    folder = Path(life["folder"])
    options = PostgresOptions.parse(life["given"])
    sink = PostgresSink(options, SCHEMA)
    built = Graph(JOB, parallelism=2)
    rows = [range(split, ROWS, 2) for split in range(2)]
    tables = [pa.table({"id": list(part), "key": [n % KEYS for n in part]}) for part in rows]
    committed: list[int] = []

    def observe(what: str, task: object, checkpoint: int) -> None:
        if what == "committed":
            committed.append(checkpoint)

    (
        built.source("rows", Paced(tables, committed))
        .key_by("key")
        .process("count", count, SCHEMA, lambda c: {"count": c.value("count", INT64)})
        .sink("out", sink)
    )
    crash.arm(life["crash"])
    Job(
        built,
        LocalSnapshotStore(folder / "snapshots"),
        sink.register(),
        backend_of(life["backend"], options, folder),
        life["strategy"],  # by position: 315a560 calls it ``way``
        settings=Settings(interval=0.05),
        observe=observe,
    ).run()


def _fork(life: Mapping[str, Any]) -> int:
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.environ.update(life["environment"])
            (live_embedded if life["sink"] == "embedded" else live)(life)
            code = 0
        except Exception:  # noqa: BLE001 - the end of a process: what it was goes to the parent
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def main() -> None:
    """Tell whose code this is, then live."""
    import abs_core
    from abs_core.testing.harness import batch_of

    batch_of([(1, "a")]).to_pylist()  # what pyarrow loads lazily, too: once, not in each life
    print(abs_core.__file__, flush=True)
    for line in sys.stdin:
        print(_fork(json.loads(line)), flush=True)


if __name__ == "__main__":
    main()
