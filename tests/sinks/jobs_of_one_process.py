"""Jobs of different options, one after the other in one process: what one does beside another.

A process keeps clients, sessions and facts from job to job. ``watched`` runs a job and notes what it
does, what it says, and how it reaches its target: all of it must be as in a process of its own.
"""

from __future__ import annotations

import logging
import re
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer

from abs_clients.kafka.cluster import close_clusters
from abs_clients.postgres import pool
from abs_clients.s3 import client
from abs_core.errors import AbsError, OptionError
from abs_core.registers import MemoryRegister
from abs_sinks.door import format_named
from abs_sinks.kafka import librdkafka
from abs_sinks.kafka.columnar.sender import ColumnarSender
from abs_testing.engine import Run
from tests.planted import Defect, planted

FOREIGN = "register elsewhere"
"""Not an option: whether the job's register lies outside the sink's own system."""

Given = Mapping[str, str]


@dataclass(frozen=True)
class Jobs:
    """The jobs of one sink that are tried beside each other.

    Args:
        format: of the sink.
        bases: one job for each protocol.
        changes: each is made to each base; together they name every option.
        rows: the input of a job, from its number and its options.
        read: what is in the target of the job's rows, given its options and its number.
    """

    format: str
    bases: Sequence[Given]
    changes: Sequence[Given]
    rows: Callable[[int, Given], pa.RecordBatch]
    read: Callable[[int, Given], Sequence[object]]

    def pairs(self) -> list[tuple[Given, Given]]:
        """Each base with each change, in both orders; the bases among each other."""
        found: list[tuple[Given, Given]] = []
        for base, change in product(self.bases, self.changes):
            changed = {**base, **change}
            if changed != dict(base) and self.is_possible(changed):
                found += [(other, changed) for other in self.bases]
                found += [(changed, other) for other in self.bases]
        found += [(one, other) for one, other in product(self.bases, self.bases) if one != other]
        return found

    def is_possible(self, given: Given) -> bool:
        """Whether the options go together."""
        if given.get(FOREIGN) and given["protocol"] == "idempotent":
            return False
        try:
            form = format_named(self.format)
            form.sink(form.parse(_options(given)), self.rows(0, given).schema).close()
        except OptionError:
            return False
        return True

    def named(self) -> set[str]:
        """Every option that a job here sets."""
        changed = ({**base, **change} for base, change in product(self.bases, self.changes))
        return {
            name for given in (*self.bases, *changed) if self.is_possible(given) for name in given
        }


def differing(jobs: Jobs, first: Given, second: Given, *, same: bool) -> str:
    """How the second job differs from itself alone, after the first in one process; empty: it does not.

    Args:
        same: whether the second continues the first one's job, with other options.
    """
    seen = []
    if (made := (jobs.format, str(second))) not in _MADE:
        _MADE.add(made)
        watched(jobs, second, f"job{secrets.token_hex(6)}")  # topics and schemas are there then
    for apart in (True, False):
        forget()
        name = f"job{secrets.token_hex(6)}"
        watched(jobs, first, name)
        if apart:
            forget()
        seen.append(watched(jobs, second, name if same else f"job{secrets.token_hex(6)}"))
    alone, beside = seen
    found = [
        f"{what}: {alone.get(what)} alone, {beside.get(what)} beside"
        for what in sorted({*alone, *beside})
        if alone.get(what) != beside.get(what)
    ]
    return "\n".join(found)


def forget() -> None:
    """As in a new process: nothing is kept of any server."""
    close_clusters()
    pool.close_idle()
    client.close_idle()


_MADE: set[tuple[str, str]] = set()
_NUMBERS = iter(range(1, 1 << 30))
_EPOCHS: dict[str, int] = {}


def watched(jobs: Jobs, given: Given, job: str) -> dict[str, object]:
    """Run one epoch of a job as an engine would; returns what it did."""
    number, done = next(_NUMBERS), dict[str, object]()
    form = format_named(jobs.format)
    options = form.parse(_options(given))
    batch = jobs.rows(number, given)
    foreign = bool(given.get(FOREIGN))
    epoch = _EPOCHS[job] = _EPOCHS.get(job, -1) + 1
    with _edges() as edges, _logged() as told:
        sink = form.sink(options, batch.schema, alone=not foreign)
        try:
            findings = sink.preflight(job)
            told_of = (f"{f.severity} {f.what}".replace(job, "JOB") for f in findings)
            # Of other jobs on the same target there are more each time.
            done["findings"] = sorted(t for t in told_of if _OTHER.search(t) is None)
            done["guarantee"] = repr(sink.guarantee())
            done["target"] = sink.target_id
            more: dict[str, Any] = {"store": _REGISTERS.setdefault(job, MemoryRegister())}
            run = Run(sink, job, **(more if foreign else {}), adopt=options.common.adopt)
            attempt = run.attempt(epoch)
            attempt.writer.write(batch)
            attempt._rows = batch.num_rows
            run.commit(epoch, [attempt.pre_commit()])
            done["frontier"] = run.state().frontier
            done["identity"] = run.state().target
        except (AbsError, AssertionError) as error:
            done["error"] = f"{type(error).__name__}: {error}"
        finally:
            sink.close()
    done |= {"edges": sorted(edges), "logged": sorted(set(told))}
    # What is only begun is not read: a reader would wait for the end of a transaction.
    done["rows"] = [] if "error" in done else [_plain(row, job) for row in jobs.read(number, given)]
    exact = ("target", "identity")
    shown = {what: str(seen) if what in exact else _plain(seen, job) for what, seen in done.items()}
    return {"error": "", **shown}


_OTHER = re.compile(r"\bjob[0-9a-f]{12}\b")
_REGISTERS: dict[str, MemoryRegister] = {}


def _options(given: Given) -> dict[str, str]:
    """Without those that a change leaves out."""
    return {name: text for name, text in given.items() if text and name != FOREIGN}


def _plain(seen: object, job: str) -> str:
    """Without what is new in each run: names of jobs, ids, times, ports of a client."""
    text = str(seen).replace(job, "JOB")
    text = re.sub(r"[0-9a-f]{8}-[0-9a-f-]{20,}|\b[0-9a-f]{12,}\b", "ID", text)
    return re.sub(r"\b\d+(\.\d+)? (ms|s|B|KiB|MiB)\b", "N", text)


@contextmanager
def _logged() -> Iterator[list[str]]:
    """Every warning."""
    found: list[str] = []

    class Noting(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            found.append(record.getMessage())

    handler = Noting(logging.WARNING)
    logging.getLogger().addHandler(handler)
    try:
        yield found
    finally:
        logging.getLogger().removeHandler(handler)


@contextmanager
def _edges() -> Iterator[set[str]]:
    """How the systems are reached: by which producer and client, with which settings."""
    found: set[str] = set()

    def note(owner: Any, name: str, told: Callable[..., str]) -> None:
        real = getattr(owner, name)

        def noting(self: Any, *args: Any, **more: Any) -> Any:
            answer = real(self, *args, **more)
            found.add(told(self, answer))
            return answer

        patch.setattr(owner, name, noting)

    with pytest.MonkeyPatch.context() as patch:
        note(ColumnarSender, "send", lambda s, _: _sent("columnar", s._topic, s.patience))
        note(
            librdkafka.LibrdkafkaSender,
            "send",
            lambda s, _: f"{_sent('librdkafka', s._topic, s._patience)} {s._producer.noted}",
        )
        patch.setattr(librdkafka, "Producer", NotingProducer)
        note(
            pool.Pool,
            "take",
            lambda _, c: f"{c.info.user}, {c.execute('show lock_timeout').fetchone()}",
        )
        note(
            client.Client,
            "api",
            lambda _, a: (
                f"{a.meta.endpoint_url} {a.meta.config.read_timeout} "
                f"{a.meta.region_name} {a.meta.config.s3['addressing_style']}"
            ),
        )
        yield found


class NotingProducer(Producer):
    """Knows its settings: of a producer that is kept, they are those of an earlier job."""

    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__(config)
        shown = {name: each for name, each in config.items() if isinstance(each, str | int)}
        self.noted = str({**shown, "transactional.id": "transactional.id" in config})


def _sent(producer: str, topic: str | None, patience: float) -> str:
    # A producer of a cell that is kept may wait longer than one that is new.
    return f"{producer} to {topic}" + (
        "" if topic and topic.endswith("cells") else f", for {patience:g}"
    )


@contextmanager
def planted_anew(
    *defects: Defect, match: str | None = None
) -> Iterator[pytest.ExceptionInfo[BaseException]]:
    """``planted``; what this process has kept knows the defects neither before nor afterwards."""
    try:
        with planted(*defects, match=match) as error:
            forget()
            yield error
    finally:
        forget()
