"""The keyed count in Bytewax, run by an interpreter that has it; imports nothing of ours.

Waits for lines ``{"keys": FILE, "form": ..., "workers": N}``, answers with seconds and a digest of the
counts. The keys are Python strings in memory before the clock starts. Two workers are two processes in
the batch form and two threads in the record form: whichever was the faster.
"""

from __future__ import annotations

import json
import multiprocessing
import socket
import sys
import time
from hashlib import sha256
from pathlib import Path
from typing import Any

from bytewax import operators as op
from bytewax.dataflow import Dataflow
from bytewax.inputs import FixedPartitionedSource, StatefulSourcePartition
from bytewax.operators import StatefulBatchLogic
from bytewax.outputs import DynamicSink, StatelessSinkPartition
from bytewax.testing import cluster_main, run_main

BATCH = 8192
"""Items that the source hands over at once; with 1000 it was slower by half."""


class Keys(FixedPartitionedSource):  # type: ignore[misc]
    """A list of keys in as many parts as there are workers."""

    def __init__(self, keys: list[str], parts: int) -> None:
        self.keys, self.parts = keys, parts

    def list_parts(self) -> list[str]:
        return [str(part) for part in range(self.parts)]

    def build_part(self, step_id: str, for_part: str, resume_state: Any) -> Part:
        share = len(self.keys) // self.parts
        return Part(self.keys, int(for_part) * share, (int(for_part) + 1) * share)


class Part(StatefulSourcePartition):  # type: ignore[misc]
    def __init__(self, keys: list[str], start: int, end: int) -> None:
        self.keys, self.at, self.end = keys, start, end

    def next_batch(self) -> list[str]:
        if self.at >= self.end:
            raise StopIteration
        batch = self.keys[self.at : min(self.at + BATCH, self.end)]
        self.at += BATCH
        return batch

    def snapshot(self) -> int:
        return self.at


class Last(DynamicSink):  # type: ignore[misc]
    """Keeps the last count of each key."""

    def __init__(self, counts: dict[str, int]) -> None:
        self.counts = counts

    def build(self, step_id: str, worker_index: int, worker_count: int) -> Any:
        counts = self.counts

        class Write(StatelessSinkPartition):  # type: ignore[misc]
            def write_batch(self, items: Any) -> None:
                counts.update(items)

        return Write()


class Count(StatefulBatchLogic):  # type: ignore[misc]
    """The fastest form: what has come of a key in a batch is counted at once."""

    def __init__(self, count: int | None) -> None:
        self.count = count or 0

    def on_batch(self, values: list[Any]) -> tuple[tuple[int], bool]:
        self.count += len(values)
        return (self.count,), StatefulBatchLogic.RETAIN

    def snapshot(self) -> int:
        return self.count


def flow(keys: list[str], form: str, workers: int, counts: dict[str, int]) -> Dataflow:
    built = Dataflow("count")
    stream = op.input("keys", built, Keys(keys, workers))
    if form == "batch":
        keyed = op.flat_map_batch("key", stream, lambda batch: [(key, None) for key in batch])
        counted = op.stateful_batch("count", keyed, Count)
    else:
        keyed = op.key_on("key", stream, lambda key: key)
        counted = op.stateful_map("count", keyed, lambda n, key: ((n or 0) + 1, (n or 0) + 1))
    op.output("last", counted, Last(counts))
    return built


def count(
    keys: list[str], form: str, workers: int, addresses: list[str], number: int
) -> dict[str, int]:
    counts: dict[str, int] = {}
    built = flow(keys, form, workers, counts)
    if workers == 1:
        run_main(built)
    elif form == "record":
        cluster_main(built, [], 0, worker_count_per_proc=workers)
    else:
        cluster_main(built, addresses, number)
    return counts


def other_worker(keys: list[str], pipe: Any) -> None:
    while True:
        asked = pipe.recv()
        time.sleep(
            0.03
        )  # the other one listens first: a connection that is refused is tried again late
        pipe.send(count(keys, *asked))


def free_addresses(count: int) -> list[str]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    addresses = [f"127.0.0.1:{one.getsockname()[1]}" for one in sockets]
    for one in sockets:
        one.close()
    return addresses


def main() -> None:
    keys = Path(sys.argv[1]).read_text().splitlines()
    here, there = multiprocessing.Pipe()
    # Before this process has threads of Bytewax's.
    multiprocessing.get_context("fork").Process(
        target=other_worker, args=(keys, there), daemon=True
    ).start()
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    for line in sys.stdin:
        asked = json.loads(line)
        addresses = free_addresses(2)
        began = time.perf_counter()
        if asked["workers"] == 1 or asked["form"] == "record":
            counts = count(keys, asked["form"], asked["workers"], [], 0)
        else:
            here.send((asked["form"], 2, addresses, 1))
            counts = count(keys, asked["form"], 2, addresses, 0)
            counts |= here.recv()
        seconds = time.perf_counter() - began
        digest = sha256(json.dumps(sorted(counts.items())).encode()).hexdigest()
        sys.stdout.write(json.dumps({"seconds": seconds, "digest": digest}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
