"""What an epoch costs on S3 at number 10 and at number 2,000: requests, time, and what a reader asks.

Sink and coordinator without Spark, two tasks of 100 rows: what is paid per epoch is nearly all of it.
An old and a young job take turns, each in a folder of its own. Requests are counted over 16 epochs,
which is how often ``idempotent`` folds its manifests; every try of a request counts. Beside it, what
Spark's own file sink keeps: its ``_spark_metadata`` is written anew, whole, every tenth epoch.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from abs_clients.s3.client import client
from abs_services import S3Service
from abs_sinks.s3 import S3Options, S3Sink, committed_files
from abs_sinks.s3.manifests import FOLD
from benchmarks import rows
from benchmarks.epoch_cost import SmallJob
from benchmarks.other_spark import session
from benchmarks.pairs import Side, Tell, interleave
from benchmarks.ratios import Bar
from benchmarks.report import Comparison, Result
from benchmarks.s3_folder import Folder

PROTOCOLS = ("2pc", "wal", "idempotent")
YOUNG, OLD = 10, 2_000
SPARK_EPOCHS = 100
BAR = Bar(low=0.9)
HOUR = 3600


def run(
    service: S3Service, *, pairs: int, tell: Tell, old: int = OLD, spark_epochs: int = SPARK_EPOCHS
) -> Iterator[Result]:
    """One result for each protocol; ``pairs`` turns of some epochs on each side."""
    of_spark = spark_metadata(spark_epochs)
    jobs = {
        (protocol, epoch): _job(protocol, Folder(service, service.bucket, f"{protocol}-{epoch}"))
        for protocol in PROTOCOLS
        for epoch in (YOUNG, old)
    }
    # All at once: each waits for the server most of the time.
    with ThreadPoolExecutor(len(jobs)) as pool:
        list(pool.map(lambda each: each[1].reach(each[0][1]), jobs.items()))
    for protocol in PROTOCOLS:
        pair = jobs[protocol, YOUNG], jobs[protocol, old]
        yield _compare(protocol, old, *pair, of_spark, pairs, tell)


def _compare(
    protocol: str,
    number: int,
    young: SmallJob,
    old: SmallJob,
    of_spark: Mapping[str, object],
    pairs: int,
    tell: Tell,
) -> Result:
    names = f"epoch {number:,}", f"epoch {YOUNG}"
    facts: dict[str, object] = {}
    for name, job in zip(names, (old, young), strict=True):
        facts |= {f"{what} at {name}": found for what, found in _counted(job).items()}
    sides = [Side(names[0], old.turn), Side(names[1], young.turn)]
    samples = interleave(sides, pairs=pairs, warm_up=0, tell=tell)
    young.check()
    for name, found in samples.items():
        each = median(sample.wall_s / sample.amount * 1e3 for sample in found)
        facts[f"ms of an epoch at {name} (median)"] = round(each, 1)
    files = len(_folder(old).files()) / old.epochs
    facts["files per hour at an epoch per second"] = round(files * HOUR)
    return Result(
        name=f"s3_listing, {protocol}",
        unit="epochs",
        samples=samples,
        comparisons=[Comparison(*names, BAR)],
        facts=facts | dict(of_spark),
        notes=("two tasks of 100 rows, one after the other; no Spark",),
    )


def _job(protocol: str, folder: Folder) -> SmallJob:
    options = S3Options.parse({**folder.options, "protocol": protocol})
    return SmallJob.start(S3Sink(options, rows.table(1).schema), folder)


def _folder(job: SmallJob) -> Folder:
    assert isinstance(job.target, Folder)
    return job.target


def _counted(job: SmallJob) -> dict[str, object]:
    """Requests of an epoch, on average over ``FOLD`` of them, and of a reader after them."""
    options = S3Options.parse({**_folder(job).options, "protocol": _protocol(job)})
    with counting(options) as calls:
        for _ in range(FOLD):
            job.epoch()
    with counting(options) as looks:
        committed_files(options)
    each = {call: round(number / FOLD, 2) for call, number in sorted(calls.items())}
    return {
        "requests of an epoch": round(calls.total() / FOLD, 2),
        "by call": each,
        "requests of a reader that asks what is committed": looks.total(),
        "bytes of the register": job.register_bytes(),
    }


def _protocol(job: SmallJob) -> str:
    return job.sink.guarantee().protocol


@contextmanager
def counting(options: S3Options) -> Iterator[Counter[str]]:
    """Every request that this process's clients send in the block, by the API's name of the call."""
    calls: Counter[str] = Counter()

    def count(event_name: str, **_: Any) -> None:
        calls[event_name.rpartition(".")[2]] += 1

    clients = [client(options.server), client(options.server, once=True)]
    for each in clients:
        each.meta.events.register("before-send.s3", count)
    yield calls
    for each in clients:
        each.meta.events.unregister("before-send.s3", count)


def spark_metadata(epochs: int) -> dict[str, object]:
    """Bytes of the log that Spark's own file sink writes anew every tenth epoch, two files an epoch."""
    with (
        tempfile.TemporaryDirectory(prefix="abs-bench-") as scratch,
        session("write_job.py") as spark,
    ):
        given, out = Path(scratch) / "input", Path(scratch) / "rows"
        rows.write_epochs(given, rows=200, files=2, epochs=epochs)
        asked = {"format": "parquet", "options": {"path": str(out)}, "input": str(given)}
        spark.ask({**asked, "schema": rows.SPARK_SCHEMA, "files": 2})
        sizes = {
            int(path.stem): path.stat().st_size
            for path in (out / "_spark_metadata").glob("*.compact")
        }
    last = max(sizes)
    return {
        "bytes of _spark_metadata written at once at epoch 10": sizes[9],
        f"bytes of _spark_metadata written at once at epoch {last + 1}": sizes[last],
    }
