"""Columns of numbers: versions of many keys, with growth, deletions, and writers beside readers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from abs_core.errors import RowError
from abs_embedded.state.codecs import FLOAT64, INT64
from abs_embedded.state.columns import MIN_SPARSE, ColumnTable, Copy, Era, Slots, Store, Words
from abs_embedded.state.contracts import StateOwner, Version
from abs_embedded.state.heap import HeapBackend
from abs_embedded.state.keygroups import GroupRange, groups_of
from abs_embedded.state.local_store import LocalSnapshotStore
from abs_embedded.state.savepoint import Entries
from abs_embedded.state.states import ValueState
from tests import sample
from tests.planted import planted

Numbers = npt.NDArray[np.int64]
PLACE = StateOwner("job", "op", 0, GroupRange(0, 128), 128)
KEYS = [b"key-%d" % n for n in range(6 * MIN_SPARSE)]


class Model(dict[bytes, int]):
    """What must be there."""

    def change(self, table: ColumnTable, chance: np.random.Generator, deleted: float) -> None:
        """Write some keys, and delete this share of them."""
        keys = [KEYS[n] for n in chance.choice(len(KEYS), 1500, replace=False)]
        numbers = chance.integers(-(2**63), 2**63 - 1, len(keys))
        gone = chance.random(len(keys)) < deleted
        table.put_array(keys, pa.array(numbers, pa.int64(), mask=gone), INT64)
        self.note(keys, numbers, gone)

    def change_singly(
        self, table: ColumnTable, chance: np.random.Generator, deleted: float
    ) -> None:
        """The same, of few keys, one at a time and some of them twice."""
        keys = [KEYS[n] for n in chance.choice(len(KEYS), 150)]
        numbers = chance.integers(-(2**63), 2**63 - 1, len(keys))
        gone = chance.random(len(keys)) < deleted
        for key, number, is_gone in zip(keys, numbers.tolist(), gone.tolist(), strict=True):
            table.put(key, None if is_gone else INT64.encode(number))
        self.note(keys, numbers, gone)
        assert [table.get(key) for key in keys] == table.get_many(keys)

    def note(self, keys: list[bytes], numbers: Numbers, gone: npt.NDArray[np.bool_]) -> None:
        for key, number, is_gone in zip(keys, numbers.tolist(), gone.tolist(), strict=True):
            if is_gone:
                self.pop(key, None)
            else:
                self[key] = number


def present(table: ColumnTable) -> dict[bytes, int]:
    return {key: INT64.decode(value) for key, _, value in table.everything()}


def applied(entries: Entries, to: dict[bytes, int]) -> dict[bytes, int]:
    """What a restore makes of ``to`` and these entries; each is there once, in its group."""
    keys = pa.array(entries.keys).to_pylist()
    assert len(set(keys)) == len(keys)
    assert pa.array(entries.groups).to_pylist() == groups_of(keys, 128).tolist()
    for key, value in zip(keys, pa.array(entries.values).to_pylist(), strict=True):
        if value is None:
            to.pop(key, None)
        else:
            to[key] = INT64.decode(value)
    return to


def held(table: ColumnTable) -> int:
    """Saved values that the base's version leads to."""
    return sum(len(era.kept()[0]) for era in table.base.era.after())


def after_failures(count: int) -> tuple[ColumnTable, Model, Model]:
    """A table with a committed checkpoint and then so many failed ones; both contents."""
    chance, model, table = np.random.default_rng(7), Model(), ColumnTable("s", 128)
    model.change(table, chance, 0.0)
    table.freeze().merge()
    committed = Model(model)
    for _ in range(count):
        model.change(table, chance, 0.2)
        model.change_singly(table, chance, 0.2)
        table.freeze()
        table.thaw()
    return table, model, committed


def test_failed_checkpoints_add_nothing_to_what_is_kept_and_lose_nothing_of_it() -> None:
    table, model, committed = after_failures(60)
    assert held(table) <= len(table.store.names)
    assert len(list(table.base.era.after())) == 1
    values = table.committed(KEYS)
    found = {k: INT64.decode(v) for k, v in zip(KEYS, values, strict=True) if v is not None}
    assert found == committed
    assert present(table) == model
    chance = np.random.default_rng(8)
    model.change(table, chance, 0.2)
    copy = table.freeze()
    wanted = Model(model)
    model.change(table, chance, 0.2)
    assert applied(copy.changes(), dict(committed)) == wanted
    assert applied(copy.whole(), {}) == wanted
    copy.merge()
    assert present(table) == model


def test_eras_that_nobody_merges_are_found() -> None:
    with planted((ColumnTable, "thaw", lambda self: None)):
        table, _, _ = after_failures(60)
        assert held(table) <= len(table.store.names)


@sample.cases(1)
@pytest.mark.parametrize("deleted", [0.0, 0.4, 0.9])
@pytest.mark.parametrize("seed", sample.members(range(4), 1, "columns"))
def test_every_version_is_what_was_there_whatever_completes_or_fails(
    seed: int, deleted: float
) -> None:
    chance = np.random.default_rng(seed)
    table, model, saved = ColumnTable("t", 128), Model(), dict[bytes, int]()
    pending: list[tuple[Copy, dict[bytes, int], dict[bytes, int]]] = []
    for _ in range(35):
        if chance.random() < 0.7:
            model.change(table, chance, deleted)
        if chance.random() < 0.7:
            model.change_singly(table, chance, deleted)
        assert present(table) == model
        if chance.random() < 0.7:
            pending.append((table.freeze(), dict(model), dict(saved)))
        for copy, then, since in pending:
            assert applied(copy.whole(), {}) == then
            assert applied(copy.changes(), dict(since)) == then
        if pending and chance.random() < 0.6:
            copy, then, _ = pending.pop(0)
            if chance.random() < 0.7:
                copy.merge()
                saved = then
        found = [None if raw is None else INT64.decode(raw) for raw in table.committed(KEYS)]
        assert found == [saved.get(key) for key in KEYS]


def test_slots_of_deleted_keys_are_given_back() -> None:
    table = ColumnTable("t", 128)
    for turn in range(40):
        keys = [b"%d-%d" % (turn, n) for n in range(MIN_SPARSE)]
        table.put_many(keys, [bytes(8)] * len(keys))
        copy = table.freeze()
        table.put_many(keys, [None] * len(keys))
        copy.merge()
    table.freeze().merge()
    assert len(table.store.names) <= 3 * MIN_SPARSE
    assert present(table) == {}


def test_a_version_is_read_beside_a_writer() -> None:
    table, model, chance = ColumnTable("t", 128), Model(), np.random.default_rng(5)
    with ThreadPoolExecutor(1) as pool:
        for turn in range(30):
            model.change(table, chance, 0.3)
            copy, then = table.freeze(), dict(model)
            read = pool.submit(copy.whole)
            while not read.done():
                model.change(table, chance, 0.3)
            assert applied(read.result(), {}) == then
            if turn % 3:
                copy.merge()


def test_a_version_is_whole_at_the_moment_a_value_is_overwritten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What a thread may see beside a writer, without chance: read right after each write of values."""
    table, model, chance, put = ColumnTable("t", 128), Model(), np.random.default_rng(5), Words.put
    model.change(table, chance, 0.3)
    copy, then = table.freeze(), dict(model)

    def watched(self: Words, at: Slots, new: Words) -> None:
        put(self, at, new)
        if self is table.store.words:
            assert applied(copy.whole(), {}) == then

    monkeypatch.setattr(Words, "put", watched)
    for _ in range(5):
        model.change(table, chance, 0.3)


def test_a_version_is_read_while_its_table_grows(monkeypatch: pytest.MonkeyPatch) -> None:
    """The new key comes between the look at the present values and that at what was kept."""
    table, after = ColumnTable("t", 128), Era.after
    then = dict.fromkeys(KEYS[: len(table.store.stamps) - 1], 7)
    table.put_many([*then], [INT64.encode(7)] * len(then))
    copy = table.freeze()

    def grows(self: Era) -> Iterator[Era]:
        monkeypatch.undo()
        table.put_many([b"one more"], [bytes(8)])
        return after(self)

    monkeypatch.setattr(Era, "after", grows)
    assert applied(copy.whole(), {}) == then


def test_a_query_beside_a_writer_sees_no_value_that_never_was() -> None:
    """Each value names its key, and is never zero: what an empty slot holds."""
    table, wrong, done = ColumnTable("t", 128), list[object](), threading.Event()
    numbers = np.arange(1, len(KEYS) + 1) << 20

    def query() -> None:
        while not done.is_set():
            for found in (table.get_many(KEYS), table.committed(KEYS)):
                wrong.extend(
                    (key, raw)
                    for key, raw, number in zip(KEYS, found, numbers.tolist(), strict=True)
                    if raw is not None and INT64.decode(raw) >> 20 != number >> 20
                )

    thread = threading.Thread(target=query)
    thread.start()
    chance = np.random.default_rng(8)
    for turn in range(300):
        some = chance.choice(len(KEYS), 1000, replace=False)
        gone = chance.random(1000) < 0.6
        array = pa.array(numbers[some] + turn, pa.int64(), mask=gone)
        table.put_array([KEYS[n] for n in some], array, INT64)
        if turn % 10 == 0:
            table.freeze().merge()
    done.set()
    thread.join()
    assert not wrong, f"{wrong[0]!r} was read, which never was a value"


class _Racing(list[bytes]):
    """Keys of a query; while they are being looked up, the writer does something."""

    def __init__(self, keys: list[bytes], meanwhile: Callable[[], object]) -> None:
        super().__init__(keys)
        self.meanwhile = meanwhile

    def __iter__(self) -> Iterator[bytes]:
        self.meanwhile()
        return super().__iter__()


def test_a_query_that_a_table_outgrows_finds_the_new_keys() -> None:
    table = ColumnTable("t", 128)
    new = [b"new-%d" % n for n in range(2 * len(table.store.stamps))]
    keys = _Racing(new, lambda: table.put_many(new, [INT64.encode(7)] * len(new)))
    assert table.get_many(keys) == [INT64.encode(7)] * len(new)


def test_doubles_come_back_bit_by_bit(new_store: Callable[[], LocalSnapshotStore]) -> None:
    backend = HeapBackend(new_store(), PLACE)
    state = ValueState(backend, "doubles", FLOAT64)
    numbers = pa.array([0.0, -0.0, float("inf"), float("nan"), 5e-324, None, 1.5])
    state.put_array(KEYS[:7], numbers)
    state.put(KEYS[7], -2.5)
    handle = backend.snapshot(1).persist()
    other = HeapBackend(backend.store, PLACE)
    other.restore([handle])
    again = ValueState(other, "doubles", FLOAT64).get_array(KEYS[:8])
    assert again.view(pa.int64()) == pa.concat_arrays([numbers, pa.array([-2.5])]).view(pa.int64())
    assert other.read("doubles", [KEYS[7], b"none"], Version.COMMITTED) == [
        FLOAT64.encode(-2.5),
        None,
    ]


def test_a_number_that_is_not_eight_bytes_is_refused_and_nothing_is_written() -> None:
    table = ColumnTable("t", 128)
    table.put(KEYS[0], bytes(8))
    writes: list[Callable[[], None]] = [
        lambda: table.put(KEYS[0], b"short"),
        lambda: table.put_many(KEYS[:2], [bytes(8), b"nine byte"]),
        lambda: table.put_many(KEYS[:2], [bytes(7), bytes(9)]),
    ]
    for write in writes:
        with pytest.raises(RowError, match="eight bytes"):
            write()
    assert present(table) == {KEYS[0]: 0}


def test_a_planted_bug_in_increments_after_a_table_was_built_anew_is_caught() -> None:
    changes = Copy.changes

    def forgetful(self: Copy) -> Entries:
        """Leaves out what was deleted before the table was built anew."""
        return changes(self) if self.version.store is self.since.store else self.whole()

    with planted((Copy, "changes", forgetful)):
        test_every_version_is_what_was_there_whatever_completes_or_fails(0, 0.9)


def test_a_planted_bug_in_writes_of_single_keys_is_caught() -> None:
    def put(self: ColumnTable, key: bytes, value: bytes | None) -> None:
        """Keeps nothing of what it overwrites."""
        if value is None or key not in self.store.slots:
            self.put_many([key], [value])
        else:
            self.store.words.put(
                self.store.find([key]), Words.from_array(pa.array([value], pa.binary(8)))
            )

    with planted((ColumnTable, "put", put)):
        test_every_version_is_what_was_there_whatever_completes_or_fails(0, 0.4)


def test_a_planted_bug_in_the_order_of_reads_and_writes_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def late(self: Store, at: Slots, new: Words) -> None:
        """Keeps after it has written."""
        before = self.words.take(at)
        self.words.put(at, new)
        fresh = self.stamps[at] < self.era.number
        self.era.before.append((at[fresh], before.take(fresh)))
        self.stamps[at] = self.era.number

    with planted((Store, "write", late)):
        test_a_version_is_whole_at_the_moment_a_value_is_overwritten(monkeypatch)
