"""Dead letters of a lake table, which another table of the epoch gets: each call is lost in every way.

Rows and letters together are what came in, in both tables or in none.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest

from abs_core import sinkmap
from abs_core.contracts import Sink, Task, Writer
from abs_core.deadletters import Count
from abs_core.errors import HandleLostError, MiscountError
from abs_core.model import Dead, JobState, Share, Wrote
from abs_core.patience import Patience
from abs_sinks.deadletters.letter import LETTERS, schema_of
from abs_sinks.deadletters.row import rows_of
from abs_sinks.deadletters.writer import Bury, GivingWriter
from abs_sinks.delta import DeltaSink
from abs_sinks.iceberg import IcebergSink
from abs_sinks.lake.sink import LakeWriter
from abs_sinks.options import ToSink
from abs_spark.share import TaskOutput, to_one
from abs_testing import Row
from abs_testing.cuts import Halted
from abs_testing.fault_injection import Fault, Wire
from abs_testing.harness import batch_of
from tests import sample
from tests.core.several_positions import FAULTS, Opened, calls, meet_all, places
from tests.core.several_sinks import QUICK, Run, System, World
from tests.kit.reshaping import ReshapingWriter
from tests.planted import planted
from tests.sample import cut
from tests.sinks.dead_letters import is_poison
from tests.sinks.lake.conftest import KINDS, in_folder

# A process that dies within this one leaves its files to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

SINKS: dict[str, Any] = {"delta": DeltaSink, "iceberg": IcebergSink}
NOTED = pa.schema([("id", pa.int64()), ("value", pa.string()), ("note", pa.string())])
SAMPLED = 4
"""Positions of a kind that the everyday test tries."""


def _noted(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Poison gets a note that is no UTF-8, which no table of the lake holds."""
    ids, values = batch.columns
    notes = [b"\xff" if is_poison(id_) else None for id_ in ids.to_pylist()]
    columns = [ids, values, pa.array(notes, pa.binary()).view(pa.string())]
    return pa.record_batch(columns, schema=NOTED)


@dataclass(frozen=True)
class Both:
    """What a reader sees of a table and its letters together."""

    table: Any
    letters: Any

    def read(self) -> Sequence[Row]:
        return [*self.table.read(), *self.buried()]

    def buried(self) -> list[Row]:
        if self.letters.options.address.load() is None:
            return []
        kept = self.letters.options.address.read().read_all().select(["row", "schema"]).to_pylist()
        rows = [rows_of([letter["row"]], schema_of(letter["schema"])) for letter in kept]
        return [(row["id"][0].as_py(), row["value"][0].as_py()) for row in rows]


@dataclass(frozen=True)
class Side:
    """One of the two tables, as the checks look at it."""

    both: Both
    table: Any

    def read(self) -> Sequence[Row]:
        return self.both.read()

    def leftovers(self, job: str) -> Sequence[str]:
        left: Sequence[str] = self.table.leftovers(job)
        return left


class LettersRun(Run):
    """Its tasks give what the sink ``rows`` refuses to the sink ``letters``, as Spark's tasks do."""

    def _task(
        self, state: JobState, epoch: int, partition: int, part: Sequence[Row]
    ) -> list[Share]:
        outs: dict[str, TaskOutput[Writer]] = {}
        self.open_writers = []

        def bury(letters: pa.RecordBatch) -> None:
            dead = letters.num_rows
            number = self.numbers["rows"]
            outs["letters"].bury(self.numbers["letters"], letters, Count(number, dead, dead, 1.0))
            outs["rows"].give_away(dead)

        def made(name: str, task: Task) -> Writer:
            writer = self.sinks[name].writer(task)
            if name == "rows":
                cast(Any, writer)._inner.bury_in(bury)
            self.open_writers.append(writer)
            return writer

        for name, number in self.numbers.items():
            place = number * sinkmap.STRIDE + partition
            who = state.register, "job", state.generation
            attempt = secrets.token_hex(6)
            task = Task(*who, epoch, place, attempt, state.frontier, state.abandoned)
            outs[name] = TaskOutput(partial(made, name, task), to_one, task, partition, name, _tell)
        outs["rows"].write(self.numbers["rows"], batch_of(part))
        return [Wrote(*out.pre_commit()[:2]) for out in outs.values()]


def _tell(_: object) -> None:
    """Nobody listens."""


class LettersWorld(World):
    """A lake table, which has the register, and the table of its dead letters."""

    def run(self, names: object = (), *, patience: Patience = QUICK) -> Run:
        return LettersRun(self.systems, patience, self.events.append)

    def check_done(self, epochs: int = 2, names: object = ()) -> None:
        super().check_done(epochs)
        counted = [recent.dead for recent in self.state().recent]
        assert counted == [(Dead(0, 5, 1),), (Dead(0, 3, 1),)][:epochs]


class NotedWriter(ReshapingWriter):
    """Takes the checks' batches."""

    def bury_in(self, elsewhere: Bury) -> None:
        cast(GivingWriter, self._writer).bury_in(elsewhere)


class JudgedSink:
    """The sink of rows; its writer can be told where its dead letters go."""

    def __init__(self, sink: Any) -> None:
        self._sink = sink

    def writer(self, task: Task) -> Writer:
        return NotedWriter(self._sink.raw_writer(task), _noted)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sink, name)


def in_two_tables(kind: str, folder: Path) -> Opened:
    @contextmanager
    def opened() -> Iterator[World]:
        with in_folder(kind, folder)() as rows, in_folder(kind, folder)() as letters:
            table, dead = cast(Any, rows), cast(Any, letters)
            options = replace(table.options, deadletter=ToSink("letters"), deadlettermax=1.0)

            def new_rows() -> Sink:
                return cast(Sink, JudgedSink(SINKS[kind](options, NOTED)))

            def new_letters() -> Sink:
                return cast(Sink, SINKS[kind](dead.options, LETTERS))

            both = Both(table, dead)
            register = SINKS[kind](table.options, NOTED).register

            def systems(wire: Wire) -> Mapping[str, System]:
                return {
                    "rows": System("rows", wire, new_rows, register, Side(both, table)),
                    "letters": System("letters", wire, new_letters, register, Side(both, dead)),
                }

            yield LettersWorld(opened=systems)

    return opened


@sample.cases(1)
@pytest.mark.parametrize("kind", KINDS)
def test_whatever_becomes_of_a_call_rows_and_dead_letters_are_the_input_or_neither_is_there(
    kind: str, tmp_path: Path
) -> None:
    opened = in_two_tables(kind, tmp_path)
    chosen = cut(places(calls(opened)), SAMPLED, f"{kind} and its dead letters, by position")
    meet_all(chosen, opened)
    print(kind, *chosen, sep=": ")


@pytest.mark.campaign
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("what", FAULTS)
@pytest.mark.parametrize("kind", KINDS)
def test_whatever_becomes_of_every_call_rows_and_dead_letters_are_the_input(
    kind: str, what: str, tmp_path: Path
) -> None:
    opened = in_two_tables(kind, tmp_path)
    chosen = places(calls(opened), [what])
    meet_all(chosen, opened)
    print(f"{kind}: {what}: {len(chosen)} positions")


def lose_prepared(world: World) -> None:
    """What was prepared of the dead letters is taken away."""
    place = cast(Any, world.systems["letters"]._look).table.place
    place = place() if callable(place) else place
    for pending in list(place.store().list(place.options.path.folder)):
        place.store().abort(pending.key, pending.upload_id)


@sample.cases(1)
@pytest.mark.parametrize("kind", KINDS)
def test_letters_that_go_between_decision_and_finish_are_an_error_that_names_them(
    kind: str, tmp_path: Path
) -> None:
    opened = in_two_tables(kind, tmp_path)
    seen = calls(opened)
    before = next(n for n, call in enumerate(seen) if call.endswith(".commit"))
    with opened() as world:
        world.wire.planned.extend([*[Fault.NONE] * before, Fault.HALTED])
        with pytest.raises(Halted):
            world.run().epoch(0)
        lose_prepared(world)
        for _ in range(2):
            with pytest.raises(HandleLostError, match="1 rows, 1 of them dead letters") as caught:
                world.run().epoch(0)
            assert caught.value.epoch == 0
        assert len(world.state().open) == 1


@sample.cases(1)
@pytest.mark.parametrize("kind", KINDS)
def test_a_letter_that_is_not_in_its_file_leaves_the_epoch_undecided(
    kind: str, tmp_path: Path
) -> None:
    """Planted: what takes the letters' rows to their file loses some."""
    keep = LakeWriter._keep_checked

    def keeps_less(self: LakeWriter, rows: pa.RecordBatch, checked: pa.RecordBatch) -> None:
        keep(self, rows, checked.slice("schema" in checked.schema.names))

    bug = LakeWriter, "_keep_checked", keeps_less
    with in_two_tables(kind, tmp_path)() as world:
        with planted(bug, by=MiscountError, match="the target holds 0 and 0"):
            world.run().epoch(0)
        assert world.state().last_decided is None
        world.run().epoch(0)
        world.check_done(1)
