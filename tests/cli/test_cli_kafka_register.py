"""``abs register`` on a register in Kafka: it shows the truth, and retires what is finished."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from abs_clients.kafka.cluster import close_clusters
from abs_core.model import Committable, Decision, HandleName, JobState
from abs_services import KafkaService
from abs_sinks.kafka.options import KafkaOptions
from abs_sinks.kafka.register.store import KafkaRegister
from tests.kit.command import abs_, abs_prints

pytestmark = pytest.mark.services

HANDLE = HandleName("0" * 16, "open", 1, 0, 0, "ab")
DONE = JobState("0" * 16, "flights", "kafka:c/t", "lineage", 3, "run", frontier=7)
OPEN = JobState(
    "0" * 16,
    "open",
    "kafka:c/t",
    "lineage",
    1,
    "run",
    open=(Decision("lineage", 0, 1, (Committable(HANDLE, 1, "x:0"),)),),
)


@pytest.fixture
def url(kafka: KafkaService) -> Iterator[str]:
    """Of a register with two jobs."""
    kafka.start()
    topic = f"register-{secrets.token_hex(6)}"
    given = {"kafka.bootstrap.servers": kafka.bootstrap, "registertopic": topic}
    register = KafkaRegister(KafkaOptions.parse(given))
    for state in (DONE, OPEN):
        register.compare_and_set(state.job, None, state)
    yield f"kafka://{kafka.bootstrap}/{topic}"
    close_clusters()


def test_registers_in_kafka_are_listed_shown_and_retired(url: str) -> None:
    listed = json.loads(abs_prints(0, "register", "list", "--url", url, "--json"))
    assert [(each["job"], each["frontier"]) for each in listed] == [("flights", 7), ("open", None)]
    shown = json.loads(abs_prints(0, "register", "show", "open", "--url", url, "--json"))
    assert shown["open"][0]["handles"] == [str(HANDLE)]
    close_clusters()  # as in another process, which has written nothing
    for told in (
        shown,
        json.loads(abs_prints(0, "register", "show", "open", "--url", url, "--json")),
    ):
        age = datetime.now(UTC) - datetime.fromisoformat(told["changed"])
        assert abs(age.total_seconds()) < 300
    assert "not finished" in str(_refused("register", "retire", "open", "--yes", "--url", url))
    abs_prints(0, "register", "retire", "flights", "--yes", "--url", url)
    assert [
        e["job"] for e in json.loads(abs_prints(0, "register", "list", "--url", url, "--json"))
    ] == ["open"]
    assert "no register" in str(_refused("register", "show", "flights", "--url", url))


def test_a_mistyped_topic_of_registers_is_told_from_one_without_jobs(url: str) -> None:
    mistyped = f"{url}-not"
    for command in (["register", "list"], ["in-doubt", "list"], ["register", "show", "flights"]):
        assert "There is no topic" in str(_refused(*command, "--url", mistyped))


def _refused(*args: str) -> BaseException | None:
    done = abs_(*args)
    assert done.exit_code != 0
    return done.exception
