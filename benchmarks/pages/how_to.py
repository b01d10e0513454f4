"""Figures in the guides."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from benchmarks.pages.figures import Results, Sentence
from benchmarks.pages.named import added_ms, epoch_ms

OPERATIONS = "docs/how-to/operations.md"
SMALL_EPOCHS = "docs/how-to/small-epochs.md"


def _epoch(results: Results, side: str) -> list[str]:
    return [epoch_ms(results, side)]


def _epoch_and_added(results: Results, side: str) -> list[str]:
    return [epoch_ms(results, side), added_ms(results, side)]


def in_small_epochs() -> Iterator[Sentence]:
    for begin, side in (("`noop` sink", "noop"), ("an empty `mapInArrow`", "empty mapInArrow")):
        yield Sentence(SMALL_EPOCHS, f"{begin} | {{}} |", partial(_epoch, side=side))
    for name, side in (
        ("PostgreSQL", "postgres"),
        ("S3", "s3"),
        ("Kafka", "kafka"),
        ("all three", "all three"),
    ):
        yield Sentence(
            SMALL_EPOCHS,
            f"`abs_spark.epoch` to {name} | {{}} | also {{}} ms",
            partial(_epoch_and_added, side=side),
        )
    yield Sentence(
        SMALL_EPOCHS,
        "between {} % (all three) and {} % (PostgreSQL) of a small epoch is Spark",
        lambda r: [
            f"{100 * float(epoch_ms(r, 'empty mapInArrow')) / float(epoch_ms(r, side)):.0f}"
            for side in ("all three", "postgres")
        ],
    )
    yield Sentence(
        SMALL_EPOCHS,
        "Three targets under one decision take {} ms; one by one they take {}, {} and {} ms.",
        lambda r: [epoch_ms(r, side) for side in ("all three", "postgres", "s3", "kafka")],
    )


def in_operations() -> Iterator[Sentence]:
    yield Sentence(
        OPERATIONS,
        "the digest takes {} us a row on an AMD EPYC core. A task's share in PostgreSQL's "
        "`2pc` writer then takes {} times the CPU time",
        lambda r: [
            f"{r.fact('row_digest', 'ns of the digest for each row (median)') / 1000:.2f}",
            f"{r.ratio('row_digest', 'with digest', 'without')['cpu']:.1f}",
        ],
    )
