"""`abs register rename` and `abs job reset` on real servers: what is committed stays, and is once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlencode

import pytest
from typer.testing import Result

from abs_clients.kafka.cluster import close_clusters
from abs_core.certificate import MemoryCertificates
from abs_core.errors import ConfigError, ProtocolError, RegisterLostError
from abs_services import KafkaService
from abs_sinks.postgres.testing import VARIANTS, open_table
from abs_sinks.s3.testing import open_folder
from abs_spark.checkpoint.certificates import CheckpointCertificates
from abs_spark.checkpoint.failures import FailedBatch
from abs_testing.case import JOB, Case, raises, rows
from abs_testing.cuts import Cut, Halted
from tests import sample
from tests.kit.command import abs_
from tests.kit.kafka import TopicHarness, open_topic
from tests.kit.kafka import Variant as KafkaVariant
from tests.kit.kafka_modes import open_attempts

pytestmark = pytest.mark.services

ROWS, MORE, LAST = rows(0, 3), rows(10, 3), rows(20, 1)
NEW = "new"
Commands = Callable[..., Result]

PLACES = ("pg-2pc-append", "pg-wal-append", "s3-2pc", "s3-wal", "kafka-2pc", "kafka-idempotent")


@pytest.fixture
def place(request: pytest.FixtureRequest) -> Iterator[tuple[Case, Commands]]:
    """An empty target, and the command line on its registers."""
    system, _, protocol = str(request.param).partition("-")
    opened = {"pg": _postgres, "s3": _s3, "kafka": _kafka}[system]
    with opened(request, protocol) as (case, where):
        yield case, lambda *arguments: abs_(*arguments, *where)
        case.close()


@contextmanager
def _postgres(
    request: pytest.FixtureRequest, protocol: str
) -> Iterator[tuple[Case, tuple[str, ...]]]:
    url = request.getfixturevalue("database")
    with open_table(url, VARIANTS[protocol]) as harness:
        yield Case(harness), ("--url", url, "--stateschema", harness.schema)


@contextmanager
def _s3(request: pytest.FixtureRequest, protocol: str) -> Iterator[tuple[Case, tuple[str, ...]]]:
    store, prefix = request.getfixturevalue("store"), request.getfixturevalue("prefix")
    given = {"endpoint": store.endpoint, "region": store.region}
    path = f"s3://{store.bucket}/{prefix}"
    with open_folder(path, {**given, "protocol": protocol}) as harness:
        yield Case(harness), ("--url", f"{harness.path}?{urlencode(given)}")


@contextmanager
def _kafka(request: pytest.FixtureRequest, protocol: str) -> Iterator[tuple[Case, tuple[str, ...]]]:
    kafka: KafkaService = request.getfixturevalue("kafka")
    kafka.start()
    opened = (
        open_attempts(kafka.bootstrap)
        if protocol == "idempotent"
        else open_topic(kafka.bootstrap, KafkaVariant(protocol))
    )
    harness: TopicHarness
    with opened as harness:
        url = f"kafka://{kafka.bootstrap}/{harness.options.registertopic}"
        yield Case(harness), ("--url", url)
    close_clusters()


def done(result: Result) -> str:
    assert result.exit_code == 0, (result.output, result.exception)
    return result.output


@sample.cases(3)
@pytest.mark.parametrize("place", PLACES, indirect=True)
def test_a_renamed_job_goes_on_and_writes_nothing_twice(place: tuple[Case, Commands]) -> None:
    case, abs_ = place
    checkpoint = MemoryCertificates()
    case.run(certificates=checkpoint).epoch(0, ROWS)
    interrupt(case, checkpoint)
    done(abs_("register", "rename", JOB, NEW))
    raises(RegisterLostError, lambda: case.run(certificates=checkpoint).begin(1))
    renamed = case.run(NEW, certificates=checkpoint)
    renamed.epoch(1, MORE)  # decided or not, the engine has not noted it
    renamed.epoch(2, LAST)
    case.holds(ROWS, MORE, LAST, when="after the renamed job went on")
    case.is_clean(JOB, NEW, when="after the renamed job went on")
    case.run(NEW, certificates=checkpoint).epoch(2, LAST)
    case.finished(ROWS, MORE, LAST, when="after a replay under the new name")


def interrupt(case: Case, checkpoint: MemoryCertificates) -> None:
    """Leave epoch 1 decided and not committed; where both are one step, not decided."""
    if case.co_commits:
        case.run(certificates=checkpoint).tasks(1, MORE)
    else:
        halted = case.run(certificates=checkpoint, cut=Cut("commit"))
        raises(Halted, lambda: halted.epoch(1, MORE))


@pytest.mark.parametrize("place", ["pg-2pc-append"], indirect=True)
def test_a_job_is_renamed_to_no_name_that_is_taken(place: tuple[Case, Commands]) -> None:
    case, abs_ = place
    case.run().epoch(0, ROWS)
    case.run(NEW).epoch(0, MORE)
    assert isinstance(abs_("register", "rename", JOB, NEW).exception, ConfigError)
    assert isinstance(abs_("register", "rename", "nobody", "else").exception, ConfigError)
    case.run().epoch(1, LAST)
    case.finished(ROWS, MORE, LAST, when="after refusals")


@sample.cases(3)
@pytest.mark.parametrize("place", PLACES, indirect=True)
def test_a_job_that_was_reset_begins_from_nothing(
    place: tuple[Case, Commands], tmp_path: Path
) -> None:
    case, abs_ = place
    (tmp_path / "metadata").write_text("{}")
    checkpoint = CheckpointCertificates(str(tmp_path))
    case.run(certificates=checkpoint).epoch(0, ROWS)
    assert abs_("job", "reset", JOB).exit_code == 1, "nobody said yes"
    done(abs_("job", "reset", JOB, "--yes"))
    lost = raises(RegisterLostError, lambda: case.run(certificates=checkpoint).begin(0))
    assert "is not there" in lost.what
    case.run(certificates=MemoryCertificates()).epoch(0, MORE)
    failed = FailedBatch(str(tmp_path), JOB)
    failed.note(7)
    done(abs_("job", "reset", JOB, "--yes", "--checkpoint", str(tmp_path)))
    assert failed.read() is None, "a batch of the job as it was"
    case.run(certificates=checkpoint, lineage="another").epoch(0, LAST)
    case.finished(ROWS, MORE, LAST, when="after two resets")


@pytest.mark.parametrize("place", ["s3-idempotent"], indirect=True)
def test_a_register_that_readers_go_by_is_neither_moved_nor_deleted(
    place: tuple[Case, Commands],
) -> None:
    case, abs_ = place
    case.run().epoch(0, ROWS)
    for command in (["register", "rename", JOB, NEW], ["job", "reset", JOB, "--yes"]):
        refused = abs_(*command)
        assert isinstance(refused.exception, ProtocolError), refused.output
        assert "readers use" in str(refused.exception)
    case.run().epoch(1, MORE)
    case.finished(ROWS, MORE, when="after refusals")
