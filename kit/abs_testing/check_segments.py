"""Checks a segment store: sealed segments are unchanged, and found only under their own name."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from functools import partial

import pyarrow as pa

from abs_core.errors import NotPreparedError
from abs_core.model import Committable, HandleName
from abs_core.wal import Entry, SegmentStore, SegmentWriter, read_segment, verify
from abs_testing.case import LOOK_ALIKES, check_all, raises, rules_in
from abs_testing.harness import SCHEMA, batch_of

NewStore = Callable[[], SegmentStore]
LARGE = 2_000_000
"""Numbers in a segment of 16 MB: more than one part of an upload."""


def check_segments(new_store: NewStore) -> list[str]:
    """Run every rule on handles of its own.

    Args:
        new_store: builds a store on the same place, as a new process would.

    Returns:
        the names of the checked rules.

    Raises:
        AssertionError: a rule is broken; its name is in the message.
    """
    return check_all({check.__name__: partial(check, new_store) for check in CHECKS})


def a_segment_comes_back_as_it_was(new_store: NewStore) -> None:
    handle = _handle()
    sealed = _write(new_store(), handle, [(1, "one")], [], [(2, "ünï"), (3, "")])
    table = pa.Table.from_batches(read_segment(new_store(), sealed), SCHEMA)
    assert table.equals(pa.table(batch_of([(1, "one"), (2, "ünï"), (3, "")]))), f"{table}"
    seal = verify(new_store(), handle)
    assert seal.committable() == sealed, f"the store says {seal}, the writer said {sealed}"


def a_large_segment_comes_back_as_it_was(new_store: NewStore) -> None:
    column = pa.array(range(LARGE), pa.int64())
    handle = _handle()
    seal = _large(new_store(), handle, column).finish()
    assert seal is not None, "a writer with rows gave no segment"
    table = pa.Table.from_batches(read_segment(new_store(), seal.committable()))
    assert table.column("n").combine_chunks().equals(column), "16 MB came back otherwise"
    new_store().delete([handle])


def a_writer_without_rows_leaves_nothing(new_store: NewStore) -> None:
    handle = _handle()
    writer = SegmentWriter(new_store(), handle, SCHEMA)
    writer.write(batch_of([]))
    assert writer.finish() is None, "a writer without rows gave a segment"
    assert not new_store().list(handle.job), "a writer without rows left something"


def what_is_not_sealed_is_not_there(new_store: NewStore) -> None:
    handle = _handle()
    writer = SegmentWriter(new_store(), handle, SCHEMA)
    writer.write(batch_of([(1, "one")]))
    assert new_store().open(handle) is None, "a segment can be read before it is sealed"
    assert not any(e.sealed for e in new_store().list(handle.job)), "it is listed as sealed"
    writer.abort()
    writer.abort()
    assert not new_store().list(handle.job), "an aborted writer left something"
    raises(NotPreparedError, lambda: verify(new_store(), handle))


def abort_after_the_seal_undoes_nothing(new_store: NewStore) -> None:
    handle = _handle()
    writer = SegmentWriter(new_store(), handle, SCHEMA)
    writer.write(batch_of([(1, "one")]))
    writer.finish()
    writer.abort()
    assert verify(new_store(), handle).rows == 1, "the abort of a finished writer undid its segment"
    new_store().delete([handle])


def a_deleted_segment_is_gone(new_store: NewStore) -> None:
    kept, gone = _handle(), _handle()
    for handle in (kept, gone):
        _write(new_store(), handle, [(1, "one")])
    for _ in ("once", "and again"):
        new_store().delete([gone, _handle()])
    assert new_store().open(gone) is None, "a deleted segment is there"
    assert not new_store().list(gone.job), "a deleted segment is listed"
    assert verify(new_store(), kept).rows == 1, "another segment was deleted too"
    new_store().delete([kept])


def what_a_dead_writer_left_can_be_deleted(new_store: NewStore) -> None:
    handle = _handle()
    writer = SegmentWriter(new_store(), handle, SCHEMA)
    writer.write(batch_of([(1, "x" * 100_000)]))
    new_store().delete([handle])
    assert not new_store().list(handle.job), "what was not sealed stays after its deletion"
    writer.abort()


def what_a_dead_writer_of_a_large_segment_left_is_listed_and_can_be_deleted(
    new_store: NewStore,
) -> None:
    handle = _handle()
    writer = _large(new_store(), handle, pa.array(range(LARGE), pa.int64()))
    left = [(entry.handle, entry.sealed) for entry in new_store().list(handle.job)]
    assert left == [(handle, False)], f"of what is not sealed {left} is listed"
    new_store().delete([handle])
    assert not new_store().list(handle.job), "what was not sealed stays after its deletion"
    writer.abort()


def a_list_is_exactly_the_jobs_own(new_store: NewStore) -> None:
    salt = secrets.token_hex(4)
    handles = [_handle(name) for name in (*(f"{name}{salt}" for name in LOOK_ALIKES), "..", ".")]
    sealed = [_write(new_store(), handle, [(1, "one")]) for handle in handles]
    for committable in sealed:
        entries = new_store().list(committable.handle.job)
        assert [entry.handle for entry in entries] == [committable.handle], f"{entries}"
        _is_whole(entries[0], committable)
    everybody = {entry.handle for entry in new_store().list(None)}
    assert everybody >= set(handles), "the list of every job leaves some out"
    new_store().delete(handles)


CHECKS = rules_in(__name__, "NewStore")
"""Every rule; each takes handles of its own."""


def _is_whole(entry: Entry, committable: Committable) -> None:
    assert entry.sealed, f"{entry} is listed as not sealed"
    assert entry.size > int(dict(committable.extra)["length"]), f"{entry} is too small"
    assert entry.age_seconds is None or 0 <= entry.age_seconds < 600, f"{entry} has an odd age"


def _handle(job: str | None = None) -> HandleName:
    job = job or f"job{secrets.token_hex(8)}"
    return HandleName(secrets.token_hex(8), job, 1, 0, 0, secrets.token_hex(6))


def _large(store: SegmentStore, handle: HandleName, column: pa.Array) -> SegmentWriter:
    """A writer that has written the column, and is not finished."""
    batch = pa.record_batch([column], names=["n"])
    writer = SegmentWriter(store, handle, batch.schema)
    for start in range(0, batch.num_rows, 250_000):
        writer.write(batch.slice(start, 250_000))
    return writer


def _write(
    store: SegmentStore, handle: HandleName, *batches: Sequence[tuple[int, str]]
) -> Committable:
    writer = SegmentWriter(store, handle, SCHEMA)
    for rows in batches:
        writer.write(batch_of(rows))
    seal = writer.finish()
    assert seal is not None, "a writer with rows gave no segment"
    return seal.committable()
