"""Handles go to the committer of their protocol; what another protocol left is ended, too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pytest

from abs_core.contracts import Committer, Conflict, Version
from abs_core.errors import ProtocolError, UnavailableError
from abs_core.model import Committable, HandleName, InDoubt, Inspection, JobState, Outcome
from abs_core.routing import ByProtocol, none_to_commit

STATE = JobState("0123456789abcdef", "job", "target", "lineage", 3, "run")


def handle(partition: int, job: str = "job") -> HandleName:
    return HandleName("0123456789abcdef", job, 3, 7, partition, "c0ffee")


def made_by(protocol: str | None, partition: int) -> Committable:
    extra = () if protocol is None else (("protocol", protocol),)
    return Committable(handle(partition), 1, "rows:1", extra)


@dataclass
class Holding(Committer):
    """A committer that holds some handles, and notes what it is asked."""

    held: list[HandleName] = field(default_factory=list)
    fails: bool = False
    asked: list[tuple[str, list[HandleName]]] = field(default_factory=list)

    def inspect(self, committables: Sequence[Committable]) -> Mapping[HandleName, Inspection]:
        self._note("inspect", committables)
        return {c.handle: Inspection(Outcome.PREPARED) for c in committables}

    def commit(self, committables: Sequence[Committable]) -> Mapping[HandleName, Outcome]:
        self._note("commit", committables)
        return {c.handle: Outcome.COMMITTED for c in committables}

    def abort(self, handles: Sequence[HandleName]) -> None:
        if self.fails:
            raise UnavailableError("It is away.")
        self.held = [handle for handle in self.held if handle not in handles]

    def in_doubt(self, job: str | None) -> Sequence[InDoubt]:
        return [InDoubt(h, None, str(id(self))) for h in self.held if job in (None, h.job)]

    def forget(self, state: JobState) -> None:
        self.asked.append(("forget", []))

    def _note(self, what: str, committables: Sequence[Committable]) -> None:
        self.asked.append((what, [c.handle for c in committables]))


class CoCommitting(Holding):
    co_commits = True

    def co_commit(
        self, committables: Sequence[Committable], expected: Version | None, state: JobState
    ) -> Version | Conflict:
        self._note("co_commit", committables)
        return "2"


class Composing(Holding):
    composes = True

    def compose(self, committables: Sequence[Committable]) -> Sequence[Committable]:
        self._note("compose", committables)
        return [made_by("2pc", 100 + len(committables))]


def test_a_committable_that_says_no_protocol_was_made_by_2pc() -> None:
    assert made_by(None, 0).protocol == "2pc"
    assert made_by("wal", 0).protocol == "wal"


def test_each_committer_is_asked_for_its_own_and_not_where_it_has_none() -> None:
    prepared, logged, reported = Holding(), Holding(), Holding()
    router = ByProtocol({"2pc": prepared, "wal": logged, "idempotent": reported})
    given = [made_by("wal", 1), made_by(None, 2), made_by("wal", 3), made_by("2pc", 4)]
    assert set(router.inspect(given)) == {c.handle for c in given}
    assert router.commit(given) == {c.handle: Outcome.COMMITTED for c in given}
    for committer, mine in ((prepared, [2, 4]), (logged, [1, 3])):
        names = [handle(partition) for partition in mine]
        assert committer.asked == [("inspect", names), ("commit", names)]
    assert reported.asked == []


@pytest.mark.parametrize("what", ["inspect", "commit"])
def test_a_handle_of_an_unknown_protocol_is_an_error_and_nothing_is_done(what: str) -> None:
    prepared = Holding()
    router = ByProtocol({"2pc": prepared})
    with pytest.raises(ProtocolError, match="protocol=wal") as raised:
        getattr(router, what)([made_by("2pc", 0), made_by("wal", 1)])
    assert raised.value.handle == str(handle(1))
    assert "protocol=wal" in (raised.value.remedy or "")
    assert prepared.asked == []


def test_a_committer_whose_handles_no_decision_names_refuses_the_first_of_them() -> None:
    assert none_to_commit([], "none", "report it") == {}
    left, right = made_by("idempotent", 0), made_by("idempotent", 1)
    with pytest.raises(ProtocolError, match="none") as refused:
        none_to_commit([left, right], "none", "report it")
    assert refused.value.handle == str(left.handle)


def test_abort_ends_a_handle_wherever_it_is_held() -> None:
    prepared, logged = Holding([handle(0), handle(1)]), Holding([handle(2)])
    ByProtocol({"2pc": prepared, "wal": logged}).abort([handle(1), handle(2)])
    assert (prepared.held, logged.held) == ([handle(0)], [])


def test_a_committer_that_fails_to_abort_does_not_stop_the_others() -> None:
    logged = Holding([handle(2)])
    router = ByProtocol({"2pc": Holding([handle(1)], fails=True), "wal": logged})
    with pytest.raises(UnavailableError):
        router.abort([handle(1), handle(2)])
    assert logged.held == []


def test_in_doubt_tells_each_handle_once_of_one_job_or_of_all() -> None:
    first, second = Holding([handle(0)]), Holding([handle(0), handle(1), handle(2, "other")])
    router = ByProtocol({"2pc": first, "wal": second})
    found = router.in_doubt("job")
    assert [doubt.handle for doubt in found] == [handle(0), handle(1)]
    assert found[0].detail == str(id(first)), "the first committer's word counts"
    assert [doubt.handle for doubt in router.in_doubt(None)][2:] == [handle(2, "other")]


def test_every_committer_forgets() -> None:
    parts = Holding(), Holding()
    ByProtocol(dict(zip(("2pc", "wal"), parts, strict=True))).forget(STATE)
    assert [part.asked for part in parts] == [[("forget", [])]] * 2


def test_the_present_protocol_says_how_an_epoch_is_decided() -> None:
    parts = {"2pc": Holding(), "wal": Composing(), "idempotent": CoCommitting()}
    kinds = {present: ByProtocol(parts, present) for present in parts}
    assert [kinds[p].composes for p in parts] == [False, True, False]
    assert [kinds[p].co_commits for p in parts] == [False, False, True]


def test_only_handles_of_the_present_protocol_are_co_committed() -> None:
    own = CoCommitting()
    router = ByProtocol({"2pc": Holding(), "idempotent": own}, "idempotent")
    with pytest.raises(ProtocolError, match="protocol=2pc"):
        router.co_commit([made_by("idempotent", 0), made_by("2pc", 1)], "1", STATE)
    assert own.asked == []
    assert router.co_commit([made_by("idempotent", 0)], "1", STATE) == "2"


def test_only_handles_of_the_present_protocol_are_composed() -> None:
    router = ByProtocol({"2pc": Holding(), "wal": Composing()}, "wal")
    made = router.compose([made_by("wal", 0), made_by("2pc", 1), made_by("wal", 2)])
    assert [c.handle.partition for c in made] == [1, 102]
