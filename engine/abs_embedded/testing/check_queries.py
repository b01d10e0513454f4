"""Rules of state backends for queries, beside the writer and over several tasks."""

from __future__ import annotations

import threading
import time

import pyarrow as pa

from abs_core.errors import AbsError, ConfigError
from abs_embedded.state.contracts import Version
from abs_embedded.state.keygroups import encode_key
from abs_embedded.testing.state_case import FLAT, KEYS, Model, StateCase
from abs_testing.case import raises

TURNS = 20


def a_query_tells_live_from_committed(case: StateCase) -> None:
    def reads(version: Version) -> dict[bytes, bytes | None]:
        return {key: case.backend(key).read(FLAT, [key], version)[0] for key in KEYS}

    def expect(committed: Model, when: str) -> None:
        wanted = {key: committed.flat.get(key) for key in KEYS}
        assert reads(Version.COMMITTED) == wanted, f"{when}: committed is something else"
        live = {key: case.model.flat.get(key) for key in KEYS}
        assert reads(Version.LIVE) == live, f"{when}: live is something else"

    case.fill("v")
    expect(Model(), "before the first checkpoint")
    saved = case.complete()
    expect(saved, "completed")
    case.put({KEYS[0]: None, KEYS[1]: b"dirty"})
    expect(saved, "after writes")
    number = case.snapshot()
    case.put({KEYS[1]: b"dirtier", KEYS[2]: b"dirty"})
    handles = case.persist(number)
    expect(saved, "before the record")
    second = case.decide(number, handles)
    case.notify(number)
    expect(second, "completed again")
    case.put({KEYS[3]: None})
    case.crash(expect=second)
    case.put({KEYS[4]: None})
    expect(second, "restored")
    raises(ConfigError, lambda: case.backends[0].read("nothing", [], Version.LIVE))


def a_query_may_run_beside_the_writer(case: StateCase) -> None:
    case.fill("0")
    case.complete()
    done, wrong = threading.Event(), list[object]()

    def query() -> None:
        while not done.is_set():
            for key in KEYS[:4]:
                for version in Version:
                    (value,) = case.backend(key).read(FLAT, [key], version)
                    if value not in {case.value(b"%d" % turn + key) for turn in range(15)}:
                        wrong.append(value)

    thread = threading.Thread(target=query)
    thread.start()
    for turn in range(15):
        case.fill(str(turn))
        if turn % 5 == 4:
            case.complete()
    done.set()
    thread.join()
    assert not wrong, f"a query read {wrong[0]!r}, which never was the value"


def one_query_reads_one_checkpoint(case: StateCase) -> None:
    """Two keys of two tasks that are equal in every snapshot are never read unequal."""
    from abs_embedded.state.query import Published  # brings Arrow Flight

    numbers = {id(case.backend(encode_key(n))): n for n in range(24)}
    assert len(numbers) > 1, "the rule needs keys of several tasks"
    columns = [pa.array(list(numbers.values()), pa.int64())]
    keys = [encode_key(n) for n in numbers.values()]
    width = len(case.backends)
    published = Published(
        [(case.place(n, width), task_backend) for n, task_backend in enumerate(case.backends)]
    )
    case.put(dict.fromkeys(keys, b"0"))
    case.complete()
    done, wrong, reads = threading.Event(), list[object](), [0]

    def query() -> None:
        while not (done.is_set() or wrong):
            try:
                values = published.read(FLAT, columns, Version.COMMITTED).to_pylist()
            except AbsError as error:
                wrong.append(error)
                return
            reads[0] += 1
            if len(set(values)) > 1:
                wrong.append(values)

    thread = threading.Thread(target=query)
    thread.start()
    try:
        for turn in range(1, TURNS + 1):
            case.put(dict.fromkeys(keys, b"%d" % turn))
            number = case.snapshot()
            case.decide(number, case.persist(number))
            for backend in case.backends:
                backend.notify_complete(number)
                time.sleep(0.002)  # tasks hear of a checkpoint one after the other
            case.copies.pop(number)
            seen, deadline = reads[0], time.monotonic() + 60
            while reads[0] == seen and not wrong and time.monotonic() < deadline:
                time.sleep(0.001)
    finally:
        done.set()
        thread.join()
    assert not wrong, f"of keys that are equal in every snapshot a query read {wrong[0]}"
    committed = [backend.committed for backend in case.backends]
    assert committed == [number] * width, f"after checkpoint {number} the backends tell {committed}"
    case.crash(expect=case.model)
    committed = [backend.committed for backend in case.backends]
    assert committed == [number] * width, (
        f"restored from checkpoint {number} the backends tell {committed}"
    )
