"""Whose handle is whose: jobs with similar names, other registers, other lineages."""

from __future__ import annotations

from abs_core.errors import FencedError, IdentityError
from abs_core.model import job_key
from abs_core.registers import MemoryRegister
from abs_testing.case import LEFT, LOOK_ALIKES, RIGHT, Case, consent_in, raises, rows
from abs_testing.cuts import Cut, Halted
from abs_testing.rules import hiding, hiding_two_step, only, two_step

NAMES = (*LOOK_ALIKES, "b", "a.b.c")


@only(hiding)
def in_doubt_is_exactly_the_jobs_own(case: Case) -> None:
    written = {}
    for number, name in enumerate(NAMES):
        share = case.run(name).attempt(0).write(*rows(100 * number, 1)).pre_commit()
        assert share.committable is not None
        written[name] = [share.committable.held_as]
    committer = case.sink().committer()
    for name, handles in written.items():
        in_doubt = [doubt.handle for doubt in committer.in_doubt(name)]
        assert in_doubt == handles, f"in doubt for job {name!r}: {in_doubt}, not {handles}"


@only(hiding)
def in_doubt_of_no_job_is_everything(case: Case) -> None:
    written = set()
    for number, name in enumerate(("a", "b@2024-01-01")):
        share = case.run(name).attempt(0).write(*rows(100 * number, 1)).pre_commit()
        assert share.committable is not None
        written.add(share.committable.held_as)
    # The target's system may hold handles of others, too.
    in_doubt = {doubt.handle for doubt in case.sink().committer().in_doubt(None)}
    assert in_doubt >= written, f"in doubt for any job are {in_doubt}, and not {written - in_doubt}"


def jobs_never_touch_each_other(case: Case) -> None:
    waiting = {}
    for number, name in enumerate(NAMES):
        run = case.run(name)
        waiting[run] = run.tasks(0, rows(100 * number, 2))
    for name in NAMES[:3]:
        # New runs of three of the jobs sweep: no other job's handle may be aborted.
        case.run(name).begin(0)
    expected = []
    for number, (run, shares) in enumerate(waiting.items()):
        if number >= 3:
            run.commit(0, shares)
            expected.append(rows(100 * number, 2))
    if case.hides:
        case.holds(*expected, when="after commits of jobs with similar names")
    case.is_clean(*NAMES, when="after commits and sweeps of jobs with similar names")


def any_job_name_will_do(case: Case) -> None:
    names = ("with space", "quote'\"", "ünïcode", "per%cent", "semi;colon--", "sl/ash\\", "a:b@c")
    keys = [job_key(name) for name in names] + [job_key("batch", "2024-01-01T00:00:00")]
    for number, key in enumerate(keys):
        run = case.run(key)
        run.epoch(0, rows(100 * number, 1))
    case.holds(*[rows(100 * n, 1) for n in range(len(keys))], when="after jobs with odd names")
    case.is_clean(*keys, when="after jobs with odd names")


@only(hiding_two_step)
def two_registers_of_one_job_never_touch_each_other(case: Case) -> None:
    mine, theirs = MemoryRegister(), MemoryRegister()
    first, second = case.run(store=mine), case.run(store=theirs)
    shares = first.tasks(0, LEFT)
    second.epoch(0, RIGHT)
    case.run(store=theirs).epoch(1, rows(20, 1))
    first.commit(0, shares)
    case.finished(LEFT, RIGHT, rows(20, 1), when="after two registers of one job name")


def another_lineage_is_refused(case: Case) -> None:
    case.run().epoch(0, LEFT)
    stranger = case.run(lineage="another")
    consent_in(raises(IdentityError, lambda: stranger.begin(0)))
    case.run().epoch(1, RIGHT)
    case.finished(LEFT, RIGHT, when="after another lineage was refused")


def a_lineage_may_be_adopted_by_consent_of_its_own(case: Case) -> None:
    case.run().epoch(5, LEFT)
    refused = case.run(lineage="another")
    token = consent_in(raises(IdentityError, lambda: refused.begin(0)))
    for lineage, epoch in (("a third", 0), ("another", 1)):
        stranger = case.run(lineage=lineage, adopt=token)
        raises(IdentityError, lambda: stranger.begin(epoch))  # noqa: B023 - called at once
    case.run(lineage="another", adopt=token).epoch(0, RIGHT)
    case.run(lineage="another", adopt=token).epoch(1, rows(20, 1))
    case.finished(LEFT, RIGHT, rows(20, 1), when="after another lineage went on")


@only(two_step)
def an_adopted_job_keeps_its_open_decisions(case: Case) -> None:
    old = case.run(cut=Cut("commit", handles=1))
    raises(Halted, lambda: old.epoch(5, LEFT, RIGHT))
    refused = case.run(lineage="another")
    token = consent_in(raises(IdentityError, lambda: refused.begin(0)))
    case.run(lineage="another", adopt=token).epoch(0, rows(20, 2))
    case.finished(LEFT, RIGHT, rows(20, 2), when="after an adopter rolled a decision forward")


@only(hiding)
def an_adopter_sweeps_the_old_lineage(case: Case) -> None:
    old = case.run()
    shares = old.tasks(0, LEFT)
    refused = case.run(lineage="another")
    token = consent_in(raises(IdentityError, lambda: refused.begin(0)))
    case.run(lineage="another", adopt=token).epoch(0, RIGHT)
    raises(FencedError, lambda: old.commit(0, shares))
    case.finished(RIGHT, when="after an adopter took the job over")
