"""A job's process, by the code that is first on the path: that of a release, or today's.

    PYTHONPATH=0.1.0.zip:0.1.0.zip/sinks:... python job.py

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


def _moved(new: str, old: str) -> Any:
    """A module that 0.1.0 has under another name."""
    # The old name first: this checkout is on the path of an older release's process, too, behind it.
    try:
        return import_module(old)
    except ModuleNotFoundError:
        return import_module(new)


def _harness() -> Any:
    return _moved("abs_testing.harness", "abs_core.testing.harness")


def new_sink(life: Mapping[str, Any]) -> Any:
    """The sink that a life names."""
    schema = _harness().SCHEMA
    kind, given, co_commit = life["sink"], life["given"], life["own_register"]
    if kind == "postgres":
        from abs_sinks.postgres.options import PostgresOptions
        from abs_sinks.postgres.sink import PostgresSink

        return PostgresSink(PostgresOptions.parse(given), schema, co_commit=co_commit)
    if kind == "kafka":
        from abs_sinks.kafka.options import KafkaOptions
        from tests.kit import kafka as kit

        return kit.KeyedSink(KafkaOptions.parse(given), kit.KEYED, co_commit=co_commit)
    from abs_sinks.s3.options import S3Options
    from abs_sinks.s3.sink import S3Sink

    return S3Sink(S3Options.parse(given), schema)


def live(life: Mapping[str, Any]) -> None:
    """Start, and work through the epochs that the engine does not hold for done."""
    from abs_core import crash
    from abs_core.patience import Patience

    registers = _moved("abs_core.registers", "abs_core.registers.file")
    engine = _moved("abs_testing.engine", "abs_core.testing.engine")
    folder = Path(life["folder"])
    sink = new_sink(life)
    store = None if life["own_register"] else registers.FileRegister(folder / "register")
    run = engine.Run(sink, JOB, store=store, patience=Patience(seconds=60.0))
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
    if name == "heap":
        return _moved("abs_embedded.state.heap", "abs_core.state.heap").HeapBackend
    if name == "rocksdb":
        rocks = _moved("abs_embedded.state.rocks", "abs_core.state.rocks")
        return rocks.RocksBackends(folder / "rocks")
    word = {"2pc": "two_phase"}.get(name, name)
    store = _moved(f"abs_embedded.stores.postgres.{word}", f"abs_stores.postgres.{word}")
    return getattr(store, f"{word}_backends")(options.server, options.stateschema)


class Paced:
    """A source whose reader waits for checkpoints: none of them depends on how fast the machine is.

    Args:
        committed: the checkpoints that this process has committed; grows.
    """

    def __init__(self, tables: Sequence[Any], committed: list[int]) -> None:
        source = _moved("abs_embedded.tables", "abs_core.runtime.tables")
        self._inner = source.TableSource(tables, 10)
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
    from abs_sinks.postgres.options import PostgresOptions
    from abs_sinks.postgres.sink import PostgresSink

    runtime = _moved("abs_embedded", "abs_core.runtime")
    int64 = _moved("abs_embedded.state.codecs", "abs_core.state.codecs").INT64
    stores = _moved("abs_embedded.state.local_store", "abs_core.state.local_store")
    schema = _harness().SCHEMA
    folder = Path(life["folder"])
    options = PostgresOptions.parse(life["given"])
    sink = PostgresSink(options, schema)
    built = runtime.Graph(JOB, parallelism=2)
    rows = [range(split, ROWS, 2) for split in range(2)]
    tables = [pa.table({"id": list(part), "key": [n % KEYS for n in part]}) for part in rows]
    committed: list[int] = []

    def observe(what: str, task: object, checkpoint: int) -> None:
        if what == "committed":
            committed.append(checkpoint)

    (
        built.source("rows", Paced(tables, committed))
        .key_by("key")
        .process("count", count, schema, lambda c: {"count": c.value("count", int64)})
        .sink("out", sink)
    )
    crash.arm(life["crash"])
    runtime.Job(
        built,
        stores.LocalSnapshotStore(folder / "snapshots"),
        sink.register(),
        backend_of(life["backend"], options, folder),
        life["strategy"],
        settings=runtime.Settings(interval=0.05),
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

    _harness().batch_of(
        [(1, "a")]
    ).to_pylist()  # what pyarrow loads lazily, too: once, not in each life
    print(abs_core.__file__, flush=True)
    for line in sys.stdin:
        print(_fork(json.loads(line)), flush=True)


if __name__ == "__main__":
    main()
