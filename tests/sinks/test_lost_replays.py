"""A replay of dead letters dies at each of its calls, or loses it: each row is written once.

The next replay finishes or forgets what was left; what comes late changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, cast

import pytest

from abs_clients.postgres.address import Address
from abs_clients.s3.objects import Objects
from abs_core.coordinator import Coordinator
from abs_core.errors import AbsError
from abs_services import KafkaService, S3Service
from abs_sinks.deadletters.place import KeptLetters
from abs_sinks.kafka.replay import KafkaLetters
from abs_sinks.postgres.replay import PostgresLetters
from abs_sinks.s3.committed import committed_files
from abs_sinks.s3.sink import S3Letters
from abs_testing.calls import Loss
from abs_testing.case import Case
from abs_testing.cuts import Halted
from tests import sample
from tests.fault_proxy.postgres import LossyProxy
from tests.kit.kafka import Variant
from tests.planted import planted
from tests.sinks.kafka.buried import NOWHERE
from tests.sinks.kafka.buried import buried as topic_with_letters
from tests.sinks.kafka.test_kafka_dead_letters import add_partitions
from tests.sinks.postgres.buried import Buried
from tests.sinks.postgres.buried import buried as table_with_letters
from tests.sinks.s3.buried import buried as folder_with_letters

pytestmark = [
    pytest.mark.services,
    # A process that dies within this one leaves its files to the garbage collector.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@dataclass
class Life:
    """Of a replay: it dies at the call of this number, before or after the call has been made."""

    number: int = 0
    after: bool = False
    calls: list[str] = field(default_factory=list)

    def call(self, name: str, made: Callable[[], Any]) -> Any:
        self.calls.append(name)
        if 0 < self.number < len(self.calls):
            raise Halted
        dies = len(self.calls) == self.number
        if dies and not self.after:
            raise Halted
        answer = made()
        if dies:
            raise Halted
        return answer


class Mortal:
    """A sink, its register, committer or writer: each call of these is one of the life."""

    def __init__(self, inner: Any, life: Life) -> None:
        self._inner, self._life = inner, life

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._inner, name)
        if not callable(value):
            return value
        if name in ("register", "committer", "raw_writer"):
            return lambda *given: Mortal(value(*given), self._life)
        if name == "close":
            return value
        return lambda *given: self._life.call(name, partial(value, *given))


@dataclass(frozen=True)
class Letters:
    """Letters whose rows the target takes by now.

    Args:
        mortal: replays them, in a life.
        kept: lists them, and replays them.
        written: the values of the rows that were replayed, as a reader of the target sees them.
    """

    mortal: Callable[[Life], KeptLetters]
    kept: KeptLetters
    written: Callable[[], Sequence[str]]


Opener = Callable[[], AbstractContextManager[Letters]]
BAD = [(7, "seven"), (12, "twelve")]


def dying(kind: Callable[[Any], Any], options: Any) -> Callable[[Life], KeptLetters]:
    """Makes letters of this kind whose replays have a life."""

    def mortal(life: Life) -> KeptLetters:
        kept = kind(options)
        make = kept._sink
        kept._sink = lambda *given: Mortal(make(*given), life)
        return cast(KeptLetters, kept)

    return mortal


@contextmanager
def in_a_topic(bootstrap: str, protocol: str) -> Iterator[Letters]:
    with topic_with_letters(bootstrap, Variant(protocol)) as harness, Case(harness) as case:
        case.run().epoch(0, BAD)
        add_partitions(harness)
        kept = KafkaLetters(harness.options)
        written = lambda: [value.decode() for value in harness.written_to(NOWHERE) if value]  # noqa: E731
        yield Letters(dying(KafkaLetters, harness.options), kept, written)


@contextmanager
def in_a_folder(path: str, given: Mapping[str, str]) -> Iterator[Letters]:
    with folder_with_letters(path, given) as harness, Case(harness) as case:
        case.run().epoch(0, BAD)
        options = replace(harness.options, fileformat="csv", compression="none")

        def written() -> list[str]:
            keys = [file.key for file in committed_files(options) if file.key.endswith(".csv")]
            bodies = [Objects(options.bucket).get(key) for key in keys]
            lines = [line for body in bodies if body for line in body.data.decode().splitlines()]
            return [line.split(",")[1].strip('"') for line in lines if line[0] != '"']

        yield Letters(dying(S3Letters, options), S3Letters(options), written)


def check_deaths(opener: Opener, choose: Callable[[list[tuple[int, bool]]], Sequence[Any]]) -> None:
    """A replay dies at each of its calls; the next one, and one more, are of another process."""
    with opener() as letters:
        ids = [letter["id"] for letter in letters.kept.found()]
        whole = Life()
        assert letters.mortal(whole).replay(ids) == len(ids)
    every = [
        (number, after) for number in range(1, len(whole.calls) + 1) for after in (False, True)
    ]
    assert "compare_and_set" in whole.calls or "co_commit" in whole.calls
    for number, after in choose(every):
        where = f"{'after' if after else 'before'} call {number}, {whole.calls[number - 1]}"
        with opener() as letters:
            ids = [letter["id"] for letter in letters.kept.found()]
            with suppress(Halted):
                letters.mortal(Life(number, after)).replay(ids)
            letters.kept.replay(ids)
            assert sorted(letters.written()) == sorted(value for _, value in BAD), where
            assert letters.kept.replay(ids) == 0, where
            assert letters.kept.found() == [], where


def folders(store: S3Service, prefix: str, protocol: str) -> Opener:
    store.start()
    given = {"endpoint": store.endpoint, "region": store.region, "protocol": protocol}
    return partial(in_a_folder, f"s3://{store.bucket}/{prefix}", given)


PROTOCOLS = ["2pc", "wal", "idempotent"]


@sample.cases(1)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_replay_that_dies_at_some_calls_is_finished_or_forgotten(
    store: S3Service, prefix: str, protocol: str
) -> None:
    def some(every: list[tuple[int, bool]]) -> list[tuple[int, bool]]:
        return sample.cut(every, 3, protocol)

    check_deaths(folders(store, prefix, protocol), some)


@pytest.mark.campaign
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_replay_to_a_folder_that_dies_at_any_call_is_finished_or_forgotten(
    store: S3Service, prefix: str, protocol: str
) -> None:
    check_deaths(folders(store, prefix, protocol), list)


@pytest.mark.campaign
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("protocol", ["2pc", "wal"])
def test_a_replay_to_a_topic_that_dies_at_any_call_is_finished_or_forgotten(
    kafka: KafkaService, protocol: str
) -> None:
    kafka.start()
    check_deaths(partial(in_a_topic, kafka.bootstrap, protocol), list)


@pytest.mark.campaign
def test_a_replay_that_does_not_look_after_the_last_one_is_found(
    store: S3Service, prefix: str
) -> None:
    bug = Coordinator, "roll_forward", lambda self: self._cell.mine(self._who)
    with planted(bug, by=(AssertionError, AbsError)):
        check_deaths(folders(store, prefix, "2pc"), list)


@contextmanager
def in_a_table(url: str) -> Iterator[tuple[LossyProxy, PostgresLetters, PostgresLetters, Buried]]:
    """Letters, a relay, and replays by it and past it."""
    with table_with_letters(url, "wal-append") as harness, Case(harness) as case:
        harness.db.execute(f"alter table {harness.table} add constraint c check (id < 7)")
        case.run().epoch(0, BAD)
        harness.db.execute(f"alter table {harness.table} drop constraint c")
        with LossyProxy(url) as proxy:
            options = replace(harness.options, address=Address.parse(proxy.url))
            yield proxy, PostgresLetters(options), PostgresLetters(harness.options), harness


@pytest.mark.campaign
@pytest.mark.timeout(3600)
def test_a_replay_that_loses_any_message_is_finished_or_forgotten(shared_database: str) -> None:
    with in_a_table(shared_database) as (proxy, through, kept, harness):
        ids = [letter["id"] for letter in kept.found()]
        proxy.arm(1, None)
        assert through.replay(ids) == len(ids)
        names = list(proxy.seen)
    for number, name in enumerate(names, 1):
        for loss in proxy.losses(name):
            with in_a_table(shared_database) as (proxy, through, kept, harness):
                ids = [letter["id"] for letter in kept.found()]
                proxy.arm(number, loss)
                with suppress(AbsError):
                    through.replay(ids)
                assert proxy.fired, name
                kept.replay(ids)
                if loss is Loss.DELAY:
                    proxy.release()
                where = f"message {number}, {name}, {loss}"
                assert kept.replay(ids) == 0, where
                assert sorted(harness.read()) == BAD, where
                assert kept.found() == [], where
