"""An epoch over a table, a topic and a folder: whatever becomes of a call, it is in all or in none.

Each call of the contract to each of the three real systems, by its position: the process dies before or
after it, it is dropped, its reply is dropped, it comes late or twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from queue import SimpleQueue

import pytest

from abs_core.contracts import Sink, Writer
from abs_services import KafkaService, PostgresService, S3Service, fresh_database
from abs_sinks.postgres.testing import Variant as TableVariant
from abs_sinks.postgres.testing import open_table
from abs_sinks.s3.testing import open_folder
from abs_testing.fault_injection import Wire
from tests import sample
from tests.core.several_positions import FAULTS, Opened, calls, meet_all, places
from tests.core.several_sinks import System, World
from tests.kit.kafka import Variant as TopicVariant
from tests.kit.kafka import open_topic
from tests.kit.kafka_modes import open_log
from tests.sample import cut

pytestmark = [
    pytest.mark.services,
    # kafka-python leaves the socket of a refused connection to the garbage collector.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

PROTOCOLS = ("2pc", "wal")
AT_ONCE = 3
SAMPLED = 4
"""Positions of a protocol that the everyday test tries."""


@pytest.fixture(scope="module")
def databases(postgres: PostgresService) -> Iterator[SimpleQueue[str]]:
    """Those that no query uses now: a harness takes what is prepared in its database for its own."""
    free: SimpleQueue[str] = SimpleQueue()
    with ExitStack() as held:
        for _ in range(AT_ONCE):
            free.put(held.enter_context(fresh_database(postgres)))
        yield free


@pytest.fixture
def opened(
    databases: SimpleQueue[str], kafka: KafkaService, store: S3Service, prefix: str, protocol: str
) -> Opened:
    """Opens a table, which has the register, a topic and a folder, all empty."""
    kafka.start()
    path, given = f"s3://{store.bucket}/{prefix}", {"protocol": protocol}
    given |= {"endpoint": store.endpoint, "region": store.region, "timeout": "20"}
    topic = open_log if protocol == "wal" else open_topic

    @contextmanager
    def world() -> Iterator[World]:
        with ExitStack() as held:
            database = databases.get()
            held.callback(databases.put, database)
            variant = TableVariant(protocol, "append", own_register=False)
            table = held.enter_context(open_table(database, variant))
            log = held.enter_context(topic(kafka.bootstrap, TopicVariant(protocol, False)))
            folder = held.enter_context(open_folder(path, given))

            def made(new_sink: Callable[[], Sink]) -> Callable[[], Sink]:
                def sink() -> Sink:
                    new = new_sink()
                    held.callback(new.close)
                    return new

                return sink

            def systems(wire: Wire) -> Mapping[str, System]:
                register = table.new_sink().register
                return {
                    "postgres": System(
                        "postgres", wire, made(table.new_sink), register, table, rolled_back
                    ),
                    "kafka": System("kafka", wire, made(log.new_sink), register, log),
                    "s3": System("s3", wire, made(folder.new_sink), register, folder),
                }

            yield World(opened=systems)

    return world


def rolled_back(writer: Writer) -> None:
    """What PostgreSQL does with the transaction of a client that has gone."""
    writer.abort()


@sample.cases(1)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_whatever_becomes_of_a_call_an_epoch_is_in_all_three_once_or_in_none(
    opened: Opened, protocol: str
) -> None:
    chosen = cut(places(calls(opened)), SAMPLED, f"three targets {protocol}, by position")
    meet_all(chosen, opened, at_once=AT_ONCE)
    print(protocol, *chosen, sep=": ")


@pytest.mark.campaign
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("what", FAULTS)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_whatever_becomes_of_every_call_an_epoch_is_in_all_three_once_or_in_none(
    opened: Opened, protocol: str, what: str
) -> None:
    chosen = places(calls(opened), [what])
    meet_all(chosen, opened, at_once=AT_ONCE)
    print(f"{protocol}: {what}: {len(chosen)} positions")
