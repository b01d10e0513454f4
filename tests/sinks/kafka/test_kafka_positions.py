"""Every call of a job to Kafka, by its position, is dropped, answered in vain, delayed or doubled."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import partial

import pytest

from abs_clients.kafka import timeouts
from abs_clients.kafka.producer_ids import init_producer_id
from abs_core.model import Outcome, Share, Wrote
from abs_services import KafkaService
from abs_sinks.kafka.columnar.choice import LIBRDKAFKA
from abs_sinks.kafka.columnar.sender import ColumnarSender
from abs_sinks.kafka.columnar.transport import NO_ANSWER, Answer
from abs_testing import (
    Harness,
    Position,
    PositionOpener,
    Repeat,
    RepeatOpener,
    by_calls,
    check_positions,
    check_repeats,
)
from abs_testing.calls import Loss
from abs_testing.case import Case, rows
from abs_testing.engine import QUICK
from tests import sample
from tests.fault_proxy.kafka import Api, LossyBroker
from tests.kit.kafka import TopicHarness, Variant, open_topic
from tests.kit.kafka_modes import open_attempts, open_log
from tests.kit.threads import end_kafka_clients
from tests.planted import planted
from tests.sample import cut
from tests.sinks.kafka.buried import buried
from tests.sinks.positions import *  # noqa: F403 - the suite
from tests.sinks.positions import Lane, in_each

pytestmark = [
    pytest.mark.services,
    # kafka-python leaves the socket of a refused connection to the garbage collector.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

CELLS = ("2pc", "wal", "idempotent")

Opener = Callable[[], AbstractContextManager[TopicHarness]]


def asked_before(opener: Opener) -> None:
    """Open a topic and ask for a producer id: a new broker is asked more often for its coordinator."""
    with opener() as harness:
        QUICK.retry(lambda: init_producer_id(harness.options.kafka, "first"))


@pytest.fixture(autouse=True, scope="module")
def _ends_soon() -> Iterator[None]:
    """A producer whose relay has gone is looked for no longer than this, and the module ends then."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(timeouts, "INIT_SECONDS", 10.0)
        yield


OPENERS: dict[str, Callable[[str], AbstractContextManager[TopicHarness]]] = {
    "2pc": partial(open_topic, variant=Variant("2pc")),
    "wal": partial(open_log, variant=Variant("wal")),
    "idempotent": open_attempts,
    "2pc-librdkafka": partial(open_topic, variant=Variant("2pc", producer=LIBRDKAFKA)),
    "wal-librdkafka": partial(open_log, variant=Variant("wal", producer=LIBRDKAFKA)),
    "idempotent-librdkafka": partial(open_attempts, producer=LIBRDKAFKA),
}
"""librdkafka repeats EndTxn by itself; of one that is sent once, a network may bring a copy."""


def by_requests(
    opener: Opener, through: Callable[[str], LossyBroker] = LossyBroker
) -> RepeatOpener:
    """Opens a topic whose sinks reach the broker through a relay; it is looked at without it."""

    @contextmanager
    def opened() -> Iterator[tuple[Harness, LossyBroker]]:
        with opener() as harness, through(harness.bootstrap) as relay:
            harness.through(relay.bootstrap)
            try:
                yield harness, relay
            finally:
                harness.let_go()

    return opened


BURYING: dict[str, Variant] = {
    **{cell: Variant(cell) for cell in CELLS},
    "wal-foreign-register": Variant("wal", own_register=False),
}
"""The cells with dead letters, each beside a topic that refuses rows: a reader sees both topics."""

WAYS: dict[str, Callable[[Opener], PositionOpener]] = {
    "requests": by_requests,
    "calls": by_calls,
    "letters": by_requests,
    "letters-calls": by_calls,
}

VARIES = {way: () if way.endswith("calls") else (Api.FIND_COORDINATOR.name,) for way in WAYS}
"""Names of the calls whose count depends on time.

A client asks again and again for a coordinator until it is connected to it. Some runs of a job ask
twice as often as others. So the last numbers of this name may not come up, in three runs of the job:
one position in 20 at most, and none of another name, see ``check_positions``. It prints those.
"""

DECIDES = {
    way: ("compare_and_set", "commit", "co_commit") if way.endswith("calls") else ("END_TXN",)
    for way in WAYS
}
"""Names of the calls by which an epoch is decided and committed."""


def sampled(cell: str, way: str, found: Sequence[Position]) -> list[Position]:
    """One position of each call that decides or commits, and one of all others."""
    names = DECIDES[way]
    deciding = [each for each in found if each.call in names]
    kinds = sorted({each.call for each in deciding})
    chosen = [
        one
        for kind in kinds
        for one in cut(
            [each for each in deciding if each.call == kind],
            1,
            f"Kafka {cell} {way} {kind}",
        )
    ]
    rest = [each for each in found if each not in deciding]
    return [*chosen, *cut(rest, 1, f"Kafka {cell} {way}")]


WHOLE = ("requests", "calls")
LOST = [("2pc", "requests"), ("wal", "requests")]
"""In the sample, as are one cell's reads and one opener's repeats."""
READ, AGAIN = cut(CELLS, 1, "Kafka, reads"), cut(OPENERS, 1, "Kafka, repeats")

LETTERS = ("2pc", "letters-calls")
"""In the sample."""

LANES = [
    *(
        Lane(
            f"Kafka {cell} {way}",
            lost=int((cell, way) in LOST),
            choose=partial(sampled, cell, way),
            varies=VARIES[way],
            rehearsals=3,
            many=3,
            reads=int(cell in READ) if way == "calls" else None,
        )
        for cell in CELLS
        for way in WHOLE
    ),
    *(
        Lane(
            f"Kafka {cell} {way}",
            lost=int((cell, way) == LETTERS),
            choose=partial(sampled, cell, way),
            varies=VARIES[way],
            rehearsals=3,
            many=3,
        )
        for cell in BURYING
        for way in ("letters", "letters-calls")
    ),
    *(Lane(f"Kafka {cell} repeats", repeats=3 * (cell in AGAIN), many=3) for cell in OPENERS),
]
pytest_generate_tests = in_each(LANES)


@pytest.fixture
def opener(kafka: KafkaService, lane: Lane) -> Opener:
    kafka.start()
    asked_before(partial(OPENERS["2pc"], kafka.bootstrap))
    _, cell, way = lane.name.split()
    if way.startswith("letters"):
        return partial(buried, kafka.bootstrap, BURYING[cell], together=True)
    return partial(OPENERS[cell], kafka.bootstrap)


@pytest.fixture
def through(opener: Opener, lane: Lane) -> PositionOpener:
    return WAYS.get(lane.name.split()[2], by_requests)(opener)


LATE: dict[str, Callable[[str], AbstractContextManager[TopicHarness]]] = {
    "2pc": partial(open_topic, variant=Variant("2pc")),
    "wal": partial(open_log, variant=Variant("wal")),
}
"""librdkafka asks again under the same id by itself: with it a late InitProducerId is a known limit."""


def inits_come_late(
    bootstrap: str, cell: str, choose: Callable[[Sequence[Repeat]], list[Repeat]], at_once: int
) -> None:
    """Each InitProducerId without an answer comes before one of the calls of the next two epochs.

    Each task has a copy that pre-commits and loses: its abort is an InitProducerId, too.
    """
    asked_before(partial(LATE[cell], bootstrap))
    late = partial(LossyBroker, repeats=Api.INIT_PRODUCER_ID, only_late=True)
    opener = by_requests(partial(LATE[cell], bootstrap), late)
    done = check_repeats(opener, choose=choose, at_once=at_once, following=8, copies=True)
    print(cell, len(done), *map(str, done[:10]), sep=": ")


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """An abort that gets no answer fails, and is asked for again by another one."""
    monkeypatch.setattr(timeouts, "GIVE_UP_SECONDS", 0.0)


@sample.cases(1)
@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("cell", LATE)
def test_an_unanswered_init_that_comes_late_aborts_nothing_that_is_decided(
    kafka: KafkaService, cell: str
) -> None:
    def sampled(found: Sequence[Repeat]) -> list[Repeat]:
        decided = [each for each in found if each.next == Api.END_TXN.name]
        return cut(decided, 4, f"Kafka {cell}, late inits")

    kafka.start()
    inits_come_late(kafka.bootstrap, cell, sampled, at_once=4)


@pytest.mark.campaign
@pytest.mark.timeout(3600)
@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("cell", LATE)
def test_no_unanswered_init_that_comes_late_aborts_anything_that_is_decided(
    kafka: KafkaService, cell: str
) -> None:
    kafka.start()
    inits_come_late(kafka.bootstrap, cell, list, at_once=3)


@pytest.mark.campaign
def test_an_answer_about_letters_that_is_guessed_is_found(kafka: KafkaService) -> None:
    """A planted bug: no answer to letters is taken for their acknowledgement; to rows it is not."""
    sound = ColumnarSender._take

    def guesses(self: ColumnarSender, answer: Answer) -> None:
        if self._topic.endswith("-dead") and answer.code == NO_ANSWER and answer.error is None:
            answer = replace(answer, code=0)
        sound(self, answer)

    def produced(found: Sequence[Position]) -> list[Position]:
        return [each for each in found if each.call == Api.PRODUCE.name]

    kafka.start()
    letters = partial(buried, kafka.bootstrap, BURYING["2pc"], together=True)
    with planted((ColumnarSender, "_take", guesses), match=r"lacks|differ|not|rows"):
        check_positions(by_requests(letters), choose=produced, varies=VARIES["letters"], at_once=3)


ENDS: Sequence[Api] = (Api.END_TXN, Api.DESCRIBE_TRANSACTIONS)
ASKED: Sequence[Api] = (
    *(*ENDS, Api.DESCRIBE_PRODUCERS, Api.LIST_TRANSACTIONS),
    *(Api.PRODUCE, Api.ADD_PARTITIONS_TO_TXN, Api.INIT_PRODUCER_ID),
)


@pytest.mark.parametrize(
    ("apis", "size"), [(ENDS, 4), pytest.param(ASKED, 1000, marks=pytest.mark.campaign)]
)
def test_a_request_or_reply_of_librdkafka_that_is_lost_loses_and_doubles_nothing(
    kafka: KafkaService, apis: Sequence[Api], size: int
) -> None:
    """Not one that is late: its InitProducerId that comes late is a known limit."""

    def lost(found: Sequence[Position]) -> list[Position]:
        names = {api.name for api in apis}
        loses = [p for p in found if p.call in names and p.loss in (Loss.REQUEST, Loss.REPLY)]
        return cut(loses, size, "Kafka, librdkafka's requests")

    kafka.start()
    opener = partial(OPENERS["2pc-librdkafka"], kafka.bootstrap)
    asked_before(opener)
    print(check_positions(by_requests(opener), choose=lost, at_once=3))


def test_a_commit_that_arrives_after_the_id_is_used_again_commits_nothing(
    kafka: KafkaService,
) -> None:
    kafka.start()
    with (
        OPENERS["2pc-librdkafka"](kafka.bootstrap) as harness,
        LossyBroker(kafka.bootstrap) as proxy,
    ):
        harness.through(proxy.bootstrap)
        with Case(harness) as case:
            _commits_late(case, proxy)
        harness.let_go()
    end_kafka_clients()  # before the next test: else they would look for the relay


def _commits_late(case: Case, proxy: LossyBroker) -> None:
    run = case.run()
    shares = run.tasks(0, rows(0, 3))
    proxy.lose(Loss.DELAY, Api.END_TXN)
    run.commit(0, shares)
    assert proxy.fired
    used = {_held(shares)}
    open_now: list[Share] = []
    # Further epochs, until the id of the first is taken again and has a transaction open.
    for epoch in range(1, 6):
        open_now = run.tasks(epoch, rows(10 * epoch, 2))
        if _held(open_now) in used:
            break
        run.commit(epoch, open_now)
    assert _held(open_now) in used, "the id was not used again"
    proxy.release()
    wrote = open_now[0]
    assert isinstance(wrote, Wrote)
    assert wrote.committable is not None
    seen = run.committer.inspect([wrote.committable])[wrote.committable.handle]
    assert seen.outcome is Outcome.PREPARED, "a commit of an older transaction ended a newer one"
    run.commit(epoch, open_now)
    expected = [rows(10 * number, 2) for number in range(1, epoch + 1)]
    case.finished(rows(0, 3), *expected, when="after a commit that arrived late")


def _held(shares: list[Share]) -> object:
    (share,) = shares
    assert isinstance(share, Wrote)
    assert share.committable is not None
    return share.committable.held_as
