"""`abs register repair` of an epoch of which a target still has a part: it is not doubled."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from abs_cli import repair
from abs_core.contracts import Sink, Task
from abs_core.coordinator import Coordinator, Report
from abs_core.errors import ConfigError, ProtocolError, TargetWentBackError
from abs_core.model import AND, Wrote
from abs_core.protocol import RunIdentity
from abs_core.several import CompositeCommitter
from abs_core.sinkmap import STRIDE, number_of
from abs_sinks.postgres.testing import VARIANTS, TableHarness, open_table
from abs_testing.behind import CommitterBehind
from abs_testing.case import JOB, consent_in, raises, rows
from abs_testing.cuts import Cut, Halted
from abs_testing.engine import QUICK
from abs_testing.fault_injection import CutWire
from abs_testing.harness import Row, batch_of
from tests.kit.command import abs_, abs_prints
from tests.planted import planted
from tests.sinks.delta import harness as delta

pytestmark = pytest.mark.services
FIRST, SECOND, THIRD, LAST = rows(0, 3), rows(10, 2), rows(20, 4), rows(30, 1)
FILE = """job = "{job}"
register = "lake"

[sinks.lake]
format = "abs-delta"
options = {{ path = "{path}" }}

[sinks.orders]
format = "abs-postgres"
options = {{ url = "{url}", dbtable = "{table}", stateschema = "{schema}" }}
"""


class Two:
    """A job that writes to a lake, where its register is, and to PostgreSQL: one task for each part."""

    def __init__(self, folder: Path, orders: TableHarness) -> None:
        self.orders, self._lake = orders, delta.TableHarness(str(folder), {})
        self._file = folder / "sinks.toml"
        places = {"path": self._lake.options.path, "url": orders.url, "table": orders.table}
        self._file.write_text(FILE.format(job=JOB, schema=orders.schema, **places))

    def run(self, cut: Cut | None = None, *, adopt: str | None = None) -> Run:
        """A new run; ``cut`` is in its commit to PostgreSQL."""
        sinks = {"lake": self._lake.new_sink(), "orders": self.orders.new_sink()}
        lake, orders = (sink.committer() for sink in sinks.values())
        behind = orders if cut is None else CommitterBehind(orders, CutWire(cut))
        committer = CompositeCommitter(
            [([0], lake), ([1], behind)], number_of, lambda *_: ConfigError("", remedy="")
        )
        named = tuple((name, sink.target_id) for name, sink in sinks.items())
        target = AND.join(identity for _, identity in named)
        who = RunIdentity(JOB, "lineage", secrets.token_hex(4), target, adopt, sinks=named)
        store = sinks["lake"].register()
        return Run(
            list(sinks.values()),
            Coordinator(who, store, committer, co_commit=False, patience=QUICK),
        )

    def repair(self, *more: str) -> Sequence[str]:
        sink = ("--sinks", str(self._file), "--sink", "orders")
        return ("register", "repair", JOB, *sink, "--epochs", "1", *more)


class Run:
    def __init__(self, sinks: Sequence[Sink], coordinator: Coordinator) -> None:
        self._sinks, self.coordinator = sinks, coordinator

    def epoch(self, epoch: int, *parts: list[Row]) -> None:
        """All parts to both sinks."""
        state, _ = self.coordinator.begin(epoch)
        shares = []
        for number, sink in enumerate(self._sinks):
            for n, part in enumerate(parts):
                place, attempt = number * STRIDE + n, secrets.token_hex(6)
                writer = sink.writer(
                    Task(state.register, JOB, state.generation, epoch, place, attempt)
                )
                writer.write(batch_of(part))
                shares.append(Wrote(len(part), writer.pre_commit()))
        self.coordinator.commit(Report(epoch, shares, f"epoch {epoch}"))


def lost_a_part(job: Two) -> TargetWentBackError:
    """PostgreSQL has one of two handles of epoch 1; the start says so."""
    job.run().epoch(0, FIRST)
    raises(Halted, lambda: job.run(Cut("commit", handles=1)).epoch(1, SECOND, THIRD))
    back: Callable[[], None] = job.orders.backup()
    later = job.run().coordinator
    later.begin(2)
    later.roll_forward()
    assert sorted(job.orders.read()) == sorted([*FIRST, *SECOND, *THIRD])
    back()
    return raises(TargetWentBackError, lambda: job.run().coordinator.begin(2))


def is_refused(job: Two) -> None:
    part = list(job.orders.read())
    assert len(FIRST) < len(part) < len([*FIRST, *SECOND, *THIRD]), "a part of epoch 1 is there"
    refused = abs_(*job.repair("--json")).exception
    assert isinstance(refused, ProtocolError), "the whole epoch is offered"
    assert "a part of the rows of epoch 1: to write all of them again would double" in refused.what


def test_an_epoch_of_which_a_part_is_there_is_refused_and_its_loss_can_be_consented_to(
    tmp_path: Path, database: str
) -> None:
    with open_table(database, VARIANTS["2pc-append-foreign-register"]) as orders:
        job = Two(tmp_path, orders)
        error = lost_a_part(job)
        assert "Of epoch(s) 1 a part may be there." in error.what
        is_refused(job)
        part = list(orders.read())
        # Where a sink writes by key, all of it may be written again.
        [lost] = json.loads(abs_prints(0, *job.repair("--keyed", "--json")))
        assert (lost["epoch"], lost["rows"]) == (1, 6)
        run = job.run(adopt=consent_in(error))
        run.epoch(2, LAST)
        job.run().coordinator.begin(3)
        assert sorted(orders.read()) == sorted([*part, *LAST]), "nothing is doubled, the loss stays"


def test_a_repair_that_takes_a_part_for_nothing_is_found(tmp_path: Path, database: str) -> None:
    blind = repair, "_check_whole", lambda job, lost, partly: None
    with open_table(database, VARIANTS["2pc-append-foreign-register"]) as orders:
        job = Two(tmp_path, orders)
        lost_a_part(job)
        with planted(blind, match="the whole epoch is offered"):
            is_refused(job)
