"""Two jobs whose names join to one transactional id: the second one is not born."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from abs_clients.kafka.cluster import close_clusters
from abs_core.births.parent import parent_key
from abs_core.codec import state_to_text
from abs_core.errors import ContentionError, UnavailableError
from abs_core.model import Finding, JobState, Severity
from abs_core.patience import Patience
from abs_services import KafkaService
from abs_sinks.kafka import KafkaOptions, KafkaSink
from abs_sinks.kafka.preflight_state import namesakes
from abs_sinks.kafka.register.session import register_id
from abs_sinks.kafka.register.store import KafkaRegister
from abs_sinks.kafka.wal import ledger_key
from abs_testing.engine import Run
from tests import sample
from tests.kit.kafka import TopicHarness, Variant, delete_topics, make_topic, open_topic

SCHEMA = pa.schema([("value", pa.string())])
STATE = JobState("0123456789abcdef", "job", "target", "lineage", 1, "run")


@pytest.mark.parametrize(
    ("topic", "key", "others"),
    [
        ("a", "job", []),
        ("a", "b.c", [("a.b", "c")]),
        ("a.b", "c", [("a", "b.c")]),
        ("a.b", "c.d@t", [("a", "b.c.d@t"), ("a.b.c", "d@t")]),
        ("a", "b@t.c", []),  # no topic has such a name
        ("a", "b..c", [("a.b", ".c"), ("a.b.", "c")]),
        ("a", "b.", []),
    ],
)
def test_namesakes_are_all_other_cells_of_one_id(
    topic: str, key: str, others: list[tuple[str, str]]
) -> None:
    assert namesakes(topic, key) == others
    assert {register_id(*cell) for cell in others} <= {register_id(topic, key)}


@pytest.fixture
def options(kafka: KafkaService, topic: str) -> Iterator[KafkaOptions]:
    """Of a job under the register topic ``NAME``; others are ``NAME.b``."""
    kafka.start()
    name = f"joined-{secrets.token_hex(4)}"
    given = {
        "kafka.bootstrap.servers": kafka.bootstrap,
        "topic": topic,
        "registertopic": name,
        "protocol": "2pc",
    }
    options = KafkaOptions.parse(given)
    make_topic(options.kafka, topic)
    yield options
    close_clusters()
    delete_topics(options.kafka, [name, f"{name}.b", topic])


def found(options: KafkaOptions, job: str, *, own_register: bool = True) -> list[Finding]:
    sink = KafkaSink(options, SCHEMA, co_commit=own_register)
    return [each for each in sink.preflight(job) if "same transactional id" in each.what]


def beside(options: KafkaOptions) -> KafkaRegister:
    return KafkaRegister(replace(options, registertopic=f"{options.registertopic}.b"))


def born(register: KafkaRegister, job: str) -> None:
    register.compare_and_set(job, None, replace(STATE, job=job))


@pytest.mark.services
def test_a_new_job_that_would_get_the_id_of_another_one_is_refused(options: KafkaOptions) -> None:
    assert not found(options, "b.c")
    born(beside(options), "c")
    [told] = found(options, "b.c")
    assert told.severity is Severity.ERROR
    assert f"{options.registertopic}.b" in told.what
    assert "job=" in told.remedy
    assert not found(options, "b.d")
    # The same looked at from the other side, as the topic with the dot is named.
    born(KafkaRegister(options), "b.e")
    [told] = found(replace(options, registertopic=f"{options.registertopic}.b"), "e")
    assert told.severity is Severity.ERROR


@pytest.mark.services
def test_a_job_that_is_there_already_is_warned_until_the_other_is_retired(
    options: KafkaOptions,
) -> None:
    born(KafkaRegister(options), "b.c")
    born(beside(options), "c")
    [told] = found(options, "b.c")
    assert told.severity is Severity.WARNING
    beside(options).retire("c")
    assert not found(options, "b.c")


@pytest.mark.services
def test_ledgers_and_parent_records_are_looked_for_too(
    options: KafkaOptions, tmp_path_factory: pytest.TempPathFactory
) -> None:
    beside(options).swap_text(ledger_key("c"), None, "{}")
    beside(options).swap_text(parent_key("c"), None, state_to_text(STATE))
    folder = tmp_path_factory.mktemp("wal").as_uri()
    wal = replace(options, wal=folder, common=replace(options.common, protocol="wal"))
    [told] = found(wal, "b.c", own_register=False)
    assert ledger_key("c") in told.what
    [told] = found(options, "b.c@today")
    assert told.severity is Severity.ERROR
    assert not found(options, "b.c"), "no id of its own is another's"


@pytest.mark.services
def test_a_topic_of_records_under_such_a_name_is_no_register(options: KafkaOptions) -> None:
    make_topic(options.kafka, f"{options.registertopic}.b")
    assert not found(options, "b.c")


@sample.cases(1)
@pytest.mark.services
@pytest.mark.timeout(300)
@pytest.mark.parametrize("protocol", ["2pc", "wal"])
def test_two_that_were_born_at_the_same_moment_stop_each_other_and_lose_or_double_nothing(
    kafka: KafkaService, tmp_path: Path, protocol: str
) -> None:
    """No preflight has told them. Each fences the other whenever it commits."""
    kafka.start()
    name, epochs = f"joined-{secrets.token_hex(4)}", 6

    def write(harness: TopicHarness, job: str) -> None:
        """Write the epochs, restarting after each error."""
        run, epoch = None, 0
        while epoch < epochs:
            run = run or Run(harness.new_sink(), job, patience=Patience(seconds=1.0))
            try:
                run.epoch(epoch, [(epoch, job)], [(100 + epoch, job)])
                epoch += 1
            except (ContentionError, UnavailableError):
                run = None
        assert run is not None
        assert run.state().frontier == epochs - 1

    with ExitStack() as opened, ThreadPoolExecutor(2) as threads:
        pairs = []
        for topic, job in ((name, "b.c"), (f"{name}.b", "c")):
            more = {"registertopic": topic}
            if protocol == "wal":
                more["wal"] = (tmp_path / job).as_uri()
            pairs.append(
                (opened.enter_context(open_topic(kafka.bootstrap, Variant(protocol), more)), job)
            )
        for future in [threads.submit(write, *pair) for pair in pairs]:
            future.result(240)
        for harness, job in pairs:
            wanted = [(first + epoch, job) for first in (0, 100) for epoch in range(epochs)]
            assert sorted(harness.read()) == wanted
