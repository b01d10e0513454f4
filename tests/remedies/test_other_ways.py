"""Ways out that an error names, applied as it says where it is printed; then the target is audited."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from abs_core.births import rules as births
from abs_core.certificate import Origin
from abs_core.errors import HandleLostError, IdentityError, SchemaError
from abs_core.model import JobState, NamedSink
from abs_core.protocol import Changed, Refused, RunIdentity, Write, plan
from abs_core.sinkmap import MAX_SINKS
from abs_sinks.postgres.testing import VARIANTS, open_table
from abs_testing.case import JOB, Case, raises, rows
from abs_testing.cuts import Cut
from tests.kit.command import abs_
from tests.sinks.delta.harness import TableHarness as DeltaHarness
from tests.sinks.postgres.changing import BARE, changing

ROWS, MORE, LATER = rows(0, 3), rows(10, 3), rows(20, 2)


def done(*arguments: str) -> str:
    result = abs_(*arguments)
    assert result.exit_code == 0, result.output
    return result.output


def lose_one_and_go_on(case: Case, *at: str) -> None:
    """Epoch 0 loses a decided handle; the words of the error, up to the rows under another name."""
    run = case.halted(Cut("commit"), ROWS, MORE)
    run.committer.abort([run.state().open[0].committables[0].handle])
    error = raises(HandleLostError, lambda: case.run().epoch(1, LATER))
    assert f"`abs in-doubt accept-loss {JOB} 0`" in str(error)
    told = done("in-doubt", "accept-loss", JOB, "0", *at, "--yes")
    assert "finished" in told
    case.run().epoch(1, LATER)


@pytest.mark.services
def test_rows_of_a_table_that_were_lost_are_written_again_under_another_job_name(
    shared_database: str,
) -> None:
    with open_table(shared_database, VARIANTS["2pc-append"]) as harness, Case(harness) as case:
        schema = harness.options.stateschema
        lose_one_and_go_on(case, "--url", shared_database, "--stateschema", schema)
        case.holds(MORE, LATER, when="after the loss was accepted")
        case.run(job="again", lineage="another").epoch(0, ROWS)
        case.finished(ROWS, MORE, LATER, when="after the lost rows were written again")


def test_rows_of_the_lake_that_were_lost_are_written_again_under_another_job_name(
    tmp_path: Path,
) -> None:
    with Case(DeltaHarness(str(tmp_path), {})) as case:
        harness = case.harness
        assert isinstance(harness, DeltaHarness)
        lose_one_and_go_on(case, "--url", f"delta:{harness.options.path}")
        case.holds(LATER, when="after the loss was accepted: of the lake all of an epoch is lost")
        case.run(job="again", lineage="another").epoch(0, ROWS, MORE)
        case.holds(ROWS, MORE, LATER, when="after the lost rows were written again")


@pytest.mark.services
def test_changes_that_were_lost_are_applied_again_under_another_job_name(
    shared_database: str,
) -> None:
    """What came after them in the table stays: positions tell it, whichever job brings them."""
    first = [(1, 1, "c", "a"), (2, 1, "c", "b"), (3, 1, "c", "c")]
    lost = [(1, 2, "u", "lost"), (2, 2, "d", None), (3, 2, "u", "C"), (4, 2, "c", "d")]
    later = [(1, 3, "u", "last"), (2, 3, "c", "again")]
    with changing(shared_database, BARE, positions="side") as t:
        run = t.job("copy")
        run.apply(0, first)
        run.apply(1, later)  # beside `lost`, an epoch that was given up
        again = t.job("again")
        again.apply(0, lost)
        assert t.rows("id, v") == [(1, "last"), (2, "again"), (3, "C"), (4, "d")]


@pytest.mark.services
def test_the_positions_of_a_job_that_is_no_more_are_dropped_as_the_error_says(
    shared_database: str,
) -> None:
    with changing(shared_database, "id bigint primary key, at bigint, v text") as t:
        t.apply([(1, 5, "c", "a"), (2, 5, "d", None)])
        other = {"positions": "side"}
        with pytest.raises(SchemaError) as refused:
            t.apply([(1, 6, "u", "b")], **other)
        (drop,) = re.findall(r"DROP TABLE [^;]+", refused.value.remedy)
        t.db.execute(drop)
        t.apply([(1, 6, "u", "b"), (3, 1, "c", "c")], **other)
        assert t.rows("id, v") == [(1, "b"), (3, "c")]


def test_a_job_with_too_many_sinks_goes_on_after_a_reset_that_keeps_the_checkpoint() -> None:
    sinks = tuple(NamedSink(n, f"s{n}", f"t{n}", n, n) for n in range(MAX_SINKS))
    state = JobState("a" * 16, JOB, "t0", "lineage", 3, "run1", (), frontier=6, sinks=sinks)
    who = RunIdentity(JOB, "lineage", "run2", "new", sinks=(("new", "new"),))
    refused = births.start(state, who, "b" * 16, Origin(), 7, "here")
    assert isinstance(refused, Refused)
    assert isinstance(refused.error, IdentityError)
    assert f"`abs job reset {JOB} --checkpoint LOCATION`" in refused.error.remedy
    begun = births.start(None, who, "b" * 16, Origin(), 7, "here")  # no register, no certificate
    assert isinstance(begun, Changed)
    assert isinstance(plan(begun.state, begun.state.generation, 7), Write)
