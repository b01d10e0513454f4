"""A write of the user's own under the real coordinator, judged by what the target has."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from abs_core import ownwrite
from abs_core.certificate import MemoryCertificates
from abs_core.contracts import Inventory
from abs_core.coordinator import Coordinator
from abs_core.errors import (
    AbsError,
    FencedError,
    IdentityError,
    ProtocolError,
    RegisterLostError,
    ReplayMismatchError,
    TargetWentBackError,
)
from abs_core.lookback import LookedBack, Past
from abs_core.model import HandleName, JobState, Outcome
from abs_core.ownwrite import (
    OwnEpoch,
    OwnWrite,
    Promise,
    Token,
    begin_of,
    token_of,
    without_functions,
)
from abs_core.protocol import RunIdentity
from abs_core.registers import MemoryRegister
from abs_core.rowdigest import RowDigest
from tests.planted import planted

G1, G2 = 1 << 32, 2 << 32


@dataclass
class World:
    """A target with a transaction for rows and version, a register and a checkpoint.

    Args:
        target: its identity in the register.
    """

    rows: Counter[str] = field(default_factory=Counter)
    versions: dict[str, int] = field(default_factory=dict)
    register: Inventory = field(default_factory=MemoryRegister)
    certificates: MemoryCertificates = field(default_factory=MemoryCertificates)
    tokens: list[Token] = field(default_factory=list)
    fails: BaseException | None = None
    """Raised by the next write, after its transaction if ``late``, else instead of it."""
    late: bool = False
    asked: int = 0
    kind: type[OwnWrite] = OwnWrite
    target: str = "target"

    def write(self, rows: Any, token: Token) -> None:
        self.tokens.append(token)
        failing, self.fails = self.fails, None
        if failing is None or self.late:
            self.transact(rows, token)
        if failing is not None:
            raise failing

    def transact(self, rows: Any, token: Token) -> None:
        if self.versions.get(token.application, -1) < token.version:
            self.rows.update(rows)
            self.versions[token.application] = token.version

    def applied(self, application: str) -> int | None:
        self.asked += 1
        return self.versions.get(application)

    @property
    def state(self) -> JobState:
        stored = self.register.load("job")
        assert stored is not None
        return stored.state

    def run(self, name: str, lineage: str = "query", **more: Any) -> Run:
        return Run(self, name, lineage, **more)


class Run:
    """One run of the job, as an engine drives it."""

    def __init__(
        self,
        world: World,
        name: str,
        lineage: str = "query",
        adopt: str | None = None,
        promise: Promise = Promise.EXACTLY_ONCE,
    ) -> None:
        self.world = world
        self.who = RunIdentity("job", lineage, name, world.target, adopt, "checkpoint")
        applied = world.applied if promise is Promise.EXACTLY_ONCE else None
        self.own = world.kind(world.write, applied, promise)
        self.coordinator = Coordinator(
            self.who, world.register, self.own, certificates=world.certificates
        )

    def epoch(self, number: int, content: str | None = None) -> Callable[[], None]:
        """Begin the run and the epoch; what is returned commits it."""
        origin = self.world.certificates.read()
        begun = self.coordinator.begin(number, gaps_allowed=True, origin=origin)
        epoch = OwnEpoch.of(begun, number)
        rows = [content or f"row {number}"]
        report = epoch.report(f"sha256:{rows}", lambda: (1, RowDigest(7)))

        def commit() -> None:
            epoch.offer_to(self.own, rows, self.who)
            self.coordinator.commit(report)

        return commit

    def write(self, number: int, content: str | None = None) -> None:
        self.epoch(number, content)()


@pytest.fixture
def world() -> World:
    return World()


def token_in(error: pytest.ExceptionInfo[AbsError]) -> str:
    return error.value.remedy.partition("adopt=")[2][:12]


def test_each_epoch_is_written_once_under_versions_that_grow(world: World) -> None:
    run = world.run("one")
    run.write(0)
    run.write(1)
    world.run("two").write(2)
    assert world.rows == {"row 0": 1, "row 1": 1, "row 2": 1}
    assert [tuple(t) for t in world.tokens] == [("job", G1), ("job", G1 + 1), ("job", G2 + 2)]
    assert str(world.tokens[0]) == f"job:{G1}"


def test_an_epoch_that_is_replayed_is_not_written_again(world: World) -> None:
    world.run("one").write(0)
    world.run("two").write(0)
    assert world.rows == {"row 0": 1}
    assert len(world.tokens) == 1


def test_a_write_that_failed_is_tried_again_under_the_version_of_its_begin(world: World) -> None:
    world.fails = ValueError("no such column")
    with pytest.raises(ProtocolError, match="write failed: ValueError: no such column") as failed:
        world.run("one").write(0)
    assert isinstance(failed.value.__cause__, ValueError)
    world.run("two").write(0)
    assert world.rows == {"row 0": 1}
    assert [token.version for token in world.tokens] == [G1, G1]


def test_a_lost_reply_is_looked_up(world: World) -> None:
    world.fails, world.late = ConnectionError("gone"), True
    world.run("one").write(0)
    assert world.rows == {"row 0": 1}
    assert world.state.frontier == 0


def test_a_killed_driver_whose_write_is_there_is_not_written_again(world: World) -> None:
    world.fails, world.late = KeyboardInterrupt(), True
    with pytest.raises(KeyboardInterrupt):
        world.run("one").write(0)
    world.run("two").write(0)
    assert len(world.tokens) == 1
    assert world.state.frontier == 0


def test_of_a_zombies_write_that_arrives_late_and_its_successors_one_takes_effect(
    world: World,
) -> None:
    world.fails = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        world.run("one").write(0)
    [late] = world.tokens
    world.run("two").write(0)
    world.transact(["row 0"], late)
    assert world.rows == {"row 0": 1}


def test_a_zombie_is_fenced_before_it_writes(world: World) -> None:
    zombie = world.run("one").epoch(0)
    world.run("two").write(0)
    with pytest.raises(FencedError):
        zombie()
    assert len(world.tokens) == 1


def test_what_failed_in_write_and_in_applied_is_both_told(world: World) -> None:
    run = world.run("one")
    commit = run.epoch(0)
    world.fails = ValueError("first")

    def fails_after_the_write(application: str) -> int | None:
        if world.tokens:
            raise ConnectionError("second")
        return None

    run.own.applied = fails_after_the_write
    with pytest.raises(ProtocolError, match="first") as failed:
        commit()
    assert failed.value.__cause__ is not None
    assert "second" in "".join(failed.value.__cause__.__notes__)


def test_a_write_that_does_not_store_its_token_is_refused(world: World) -> None:
    run = world.run("one")
    run.own.write = lambda rows, token: None
    with pytest.raises(ProtocolError, match="does not have version"):
        run.write(0)
    world.run("two").write(0)
    assert world.rows == {"row 0": 1}


@pytest.mark.parametrize("answer", ["7", 1.5, True, False, 0, 7, -1, G1 - 1, 1 << 63])
def test_an_answer_that_is_no_version_is_refused(world: World, answer: object) -> None:
    run = world.run("one")
    run.own.applied = lambda application: answer  # type: ignore[assignment, return-value]
    with pytest.raises(ProtocolError, match="applied failed"):
        run.write(0)
    assert not world.tokens


def test_the_check_finds_an_answer_that_is_taken_for_a_version() -> None:
    with planted((ownwrite, "_checked", operator.index), match="epoch 0 of it"):
        test_an_answer_that_is_no_version_is_refused(World(), 0)


def test_another_batch_under_a_begun_number_is_refused_before_it_is_written(world: World) -> None:
    world.fails = ValueError()
    with pytest.raises(ProtocolError):
        world.run("one").write(0)
    with pytest.raises(ReplayMismatchError):
        world.run("two").write(0, "another row")
    assert not world.rows


def test_no_later_epoch_is_written_before_the_begun_one_is_there(world: World) -> None:
    world.fails = ValueError()
    with pytest.raises(ProtocolError):
        world.run("one").write(0)
    with pytest.raises(ProtocolError, match="Epoch 0 was begun") as refused:
        world.run("two").write(1)
    assert not world.rows
    world.run("three", adopt=token_in(refused)).write(1)
    assert world.rows == {"row 1": 1}
    world.run("four").write(2)  # what was left is not taken for gone
    assert world.rows == {"row 1": 1, "row 2": 1}


def test_a_begin_outlives_the_adoption_by_another_query(world: World) -> None:
    world.fails = ValueError()
    with pytest.raises(ProtocolError):
        world.run("one").write(5)
    world.certificates.certificate = None
    with pytest.raises(IdentityError) as refused:
        world.run("two", "other").write(0)
    with pytest.raises(ProtocolError, match="Epoch 5 was begun"):
        world.run("three", "other", adopt=token_in(refused)).write(0)
    world.transact(["row 5"], world.tokens[0])  # it was under way
    world.run("four", "other").write(0)
    assert world.rows == {"row 5": 1, "row 0": 1}
    assert world.tokens[-1].version > world.tokens[0].version


def test_a_register_that_is_lost_is_refused_although_the_checkpoint_is_gone_too(
    world: World,
) -> None:
    world.run("one").write(0)
    world.register, world.certificates = MemoryRegister(), MemoryCertificates()
    with pytest.raises(RegisterLostError, match="its target has epoch 0") as refused:
        world.run("two", "other").write(0, "new")
    assert world.rows == {"row 0": 1}
    world.run("three", "other", adopt=token_in(refused)).write(0, "new")
    assert world.rows == {"row 0": 1, "new": 1}
    assert world.tokens[-1].version == G2


def test_a_lost_register_that_is_put_back_goes_on(world: World) -> None:
    world.run("one").write(0)
    kept, world.register = world.register, MemoryRegister()
    certificate, world.certificates = world.certificates, MemoryCertificates()
    with pytest.raises(RegisterLostError, match="restore the register"):
        world.run("two").write(1)
    world.register, world.certificates = kept, certificate
    world.run("three").write(1)
    assert world.rows == {"row 0": 1, "row 1": 1}


def test_after_consent_beside_a_certificate_the_versions_go_on_above(world: World) -> None:
    world.run("one").write(0)
    world.run("two").write(1)
    world.register = MemoryRegister()
    with pytest.raises(RegisterLostError) as refused:
        world.run("three").write(2)
    world.run("four", adopt=token_in(refused)).write(2)
    assert world.rows == {"row 0": 1, "row 1": 1, "row 2": 1}


def test_register_and_checkpoint_that_went_back_together_are_refused(world: World) -> None:
    run = world.run("one")
    run.write(0)
    kept = world.register.load("job")
    certificate = world.certificates.certificate
    run.write(1)
    assert kept is not None
    world.register, world.certificates = MemoryRegister(), MemoryCertificates(certificate)
    world.register.compare_and_set("job", None, kept.state)
    with pytest.raises(RegisterLostError, match="restored from an older backup"):
        world.run("two").write(1)
    assert world.rows == {"row 0": 1, "row 1": 1}


def test_a_register_that_goes_back_in_a_run_is_found_before_the_begin(world: World) -> None:
    """Nothing else sees it: the run began before, and its register is not younger than it was."""
    run = world.run("one")
    commit = run.epoch(0)
    world.versions["job"] = G1 + 7
    with pytest.raises(AbsError, match="committed before its epoch is decided"):
        commit()
    assert world.state.open == ()
    assert not world.rows


def test_a_target_that_went_back_is_refused(world: World) -> None:
    run = world.run("one")
    run.write(0)
    kept = dict(world.versions)
    run.write(1)
    world.versions, world.rows = kept, Counter(["row 0"])
    with pytest.raises(TargetWentBackError, match=r"no longer has the finished epoch\(s\) 1\."):
        world.run("two").write(2)
    assert world.rows == {"row 0": 1}


class Blind(OwnWrite):
    def look_back(self, past: Past) -> Sequence[LookedBack]:
        return () if past.running else super().look_back(past)


@pytest.mark.parametrize("planted", [False, True], ids=["sound", "planted"])
def test_a_target_that_goes_back_while_a_run_goes_on_is_refused_before_the_begin(
    world: World, planted: bool
) -> None:
    """Planted: what it has is not compared then. Its next version hides the loss from every start."""
    world.kind = Blind if planted else OwnWrite
    run = world.run("one")
    run.write(0)
    kept = dict(world.versions)
    run.write(1)
    asked = world.asked
    run.write(2)
    assert world.asked - asked == 2, "before and after the write, and no third time"
    world.versions, world.rows = kept, Counter(["row 0"])
    if planted:
        run.write(3)
        world.run("two").write(4)  # unnoticed
        assert world.rows == {"row 0": 1, "row 3": 1, "row 4": 1}
        return
    with pytest.raises(TargetWentBackError, match=r"no longer has .*epoch\(s\) 1 to 2\."):
        run.write(3)
    assert world.state.open == ()
    assert world.rows == {"row 0": 1}


class TestWithoutApplied:
    def test_at_least_once_writes_again_under_the_same_token(self, world: World) -> None:
        world.fails, world.late = KeyboardInterrupt(), True
        with pytest.raises(KeyboardInterrupt):
            world.run("one", promise=Promise.AT_LEAST_ONCE).write(0)
        world.run("two", promise=Promise.AT_LEAST_ONCE).write(0)
        assert world.tokens[0] == world.tokens[1]

    def test_at_most_once_does_not_write_again(self, world: World) -> None:
        world.fails = KeyboardInterrupt()
        with pytest.raises(KeyboardInterrupt):
            world.run("one", promise=Promise.AT_MOST_ONCE).write(0)
        run = world.run("two", promise=Promise.AT_MOST_ONCE)
        run.write(0)
        run.write(1)
        assert world.rows == {"row 1": 1}
        assert len(world.tokens) == 2

    def test_a_target_that_cannot_tell_is_not_asked(self, world: World) -> None:
        world.versions["job"] = 1 << 40
        run = world.run("one", promise=Promise.AT_MOST_ONCE)
        run.write(0)
        world.run("two", promise=Promise.AT_MOST_ONCE).write(1)
        assert world.state.frontier == 1


def test_without_its_functions_what_is_begun_is_left_or_refused() -> None:
    begun = begin_of(HandleName("0" * 16, "job", 1, 5, 0, "a"))
    with pytest.raises(ProtocolError, match="only its query can tell"):
        without_functions(leave=False).commit([begun])
    assert without_functions(leave=True).commit([begun]) == {begun.handle: Outcome.COMMITTED}


def test_the_version_is_of_the_first_begin() -> None:
    begin = HandleName("0" * 16, "job", 3, 5, 0, "a")
    assert token_of(begin) == ("job", 3 * (1 << 32) + 5)
    assert token_of(replace(begin, attempt="b")) == token_of(begin)
