"""Figures in the pages that explain."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.pages.figures import Results, Sentence
from benchmarks.pages.named import flink

ABS = "docs/explanation/abs.md"
STATE = "docs/explanation/state.md"


def _bytewax(results: Results) -> Iterator[str]:
    one, two = "keyed_count, 1 worker", "keyed_count, 2 workers"
    yield from results.spread(one, "arrow", "bytewax, batches", 1)
    yield f"{results.median(two, 'arrow', 'bytewax, batches'):.1f}"
    yield from (f"{results.median(each, 'rows', 'bytewax, records'):.2f}" for each in (one, two))


def _two_workers(results: Results) -> Iterator[str]:
    for side, digits in (("arrow", 1), ("rows", 2)):
        for result in ("keyed_count, 2 workers", "keyed_count, 1 worker"):
            yield f"{results.speed(result, side):.{digits}f}"


def _fits(results: Results) -> Iterator[str]:
    begin, each, _, fit = results.numbers("alignment, shuffles", "fit")  # between them is R2's
    yield from (f"{begin:.0f}", f"{each:.0f}", f"{fit:.2f}")
    base, power, _, fit = results.numbers("alignment, parallelism", "fit")
    yield from (f"{power:.1f}", f"{base:.1f}", f"{power:.2f}", f"{fit:.2f}")


def _stopped(results: Results) -> Iterator[str]:
    for seconds in ("0.1", "0.3"):
        result = f"snapshot_sweep, every {seconds} s"
        yield from results.spread(result, "stop_the_world", "aligned", 3)


def in_abs() -> Iterator[Sentence]:
    yield Sentence(
        ABS,
        "with Arrow operators {} times as fast as Bytewax's fastest form with one worker "
        "(quartiles {} - {}), {} times with two. With a Python function for each row {} and {} "
        "times as fast",
        _bytewax,
    )
    yield Sentence(
        ABS,
        "operators run {} times as fast as its SQL with one worker and {} times with two (16 M "
        "rows). A function for each row runs {} and {} times as fast",
        lambda r: [*flink(r, "SQL", "arrow"), *flink(r, "a Python function", "rows")],
    )
    yield Sentence(
        ABS,
        "(10,000 entries: {} ms, 1,000,000: {} ms)",
        lambda r: [
            f"{r.fact('alignment, entries of state', f'ms with {many} (median)'):.1f}"
            for many in ("10,000 entries of state", "1,000,000 entries of state")
        ],
    )
    yield Sentence(
        ABS,
        "Shuffles: {} ms + {} ms for each, R2 = {}. **With the parallelism p it does not grow "
        "linearly, but as p^{}** ({} ms x p^{}, R2 of the logarithms {})",
        _fits,
    )
    yield Sentence(
        ABS,
        "Aligned snapshots every 3 s ran at {} of the speed without snapshots (10 pairs, "
        "quartiles {} - {},",
        lambda r: r.spread("snapshot_ways, aligned every 3 s", "aligned", "none", 3),
    )
    yield Sentence(
        ABS,
        "Stop-the-world ran at {} of aligned ({} - {}) every 0.1 s and at {} ({} - {}) every 0.3 s",
        _stopped,
    )
    yield Sentence(
        ABS,
        "Arrow operators count {} and {} M rows/s, a Python function for each row {} and {}.",
        _two_workers,
    )


def in_state() -> Iterator[Sentence]:
    for entries in ("10,000", "100,000", "1,000,000"):

        def figures(results: Results, entries: str = entries) -> Iterator[str]:
            for kind in ("heap", "rocksdb"):
                for what in ("copy", "increment", "whole"):
                    sample = results.middle(f"state_snapshots, {kind}", f"{what}, {entries}")
                    digits = 2 if (kind, what) == ("heap", "copy") else 0
                    yield f"{sample['wall_s'] * 1000:.{digits}f}"

        text = f"| {entries} | {{}} ms | {{}} ms | {{}} ms | {{}} ms | {{}} ms | {{}} ms |"
        yield Sentence(STATE, text, figures)
    yield Sentence(
        STATE,
        "(at 1,000,000 entries, {} MB were new in the last checkpoint)",
        lambda r: [
            f"{r.fact('state_snapshots, rocksdb', 'bytes, 1,000,000')['increment'] / 1e6:.1f}"
        ],
    )
