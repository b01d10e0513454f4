"""On a broker with TLS, passwords and ACLs: what a job needs is what the documentation lists, and who
lacks a part of it is told which, without a secret (I9)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import duckdb
import pytest

from abs_audit.kafka import KafkaTopic
from abs_audit.locate import relation
from abs_clients.kafka.cluster import close_clusters
from abs_core.errors import AbsError, RefusedError
from abs_core.model import Severity
from abs_core.registers import MemoryRegister
from abs_core.source import Limit
from abs_sinks.kafka import KafkaOptions, KafkaSink
from abs_sources.kafka import KafkaSource, KafkaSourceOptions
from abs_testing.engine import Run
from tests import sample
from tests.kit.command import abs_
from tests.kit.kafka import KEYED, KeyedSink, make_topic
from tests.kit.kafka_reading import settle
from tests.kit.kafka_secured import SecuredKafka
from tests.sinks.kafka.secured import Allowed, Principals, allow

pytestmark = pytest.mark.services

TOPIC, REGISTER, SIDE = "t", "reg", "t.abs-winners"

WRITES = allow("TOPIC", TOPIC, "WRITE", "DESCRIBE")
READS = allow("TOPIC", TOPIC, "READ", "DESCRIBE")
ENDS = allow("TRANSACTIONAL_ID", "abs1:*", "WRITE", "DESCRIBE")
CELL = allow("TRANSACTIONAL_ID", "abs-register.*", "WRITE", "DESCRIBE")
CELLS = allow("TOPIC", REGISTER, "CREATE", "READ", "WRITE", "DESCRIBE", "DESCRIBE_CONFIGS")
CONFIGS = allow("TOPIC", TOPIC, "DESCRIBE_CONFIGS")
WINNERS = allow("TOPIC", SIDE, "CREATE", "WRITE", "DESCRIBE", "DESCRIBE_CONFIGS")

NEEDED = {
    "2pc": (WRITES, ENDS, CELL, CELLS),
    "wal": (WRITES, CELL, CELLS),
    "idempotent": (WRITES, CONFIGS, WINNERS, CELL, CELLS),
}
"""What ``docs/reference/kafka.md`` lists, protocol by protocol, and nothing more."""

Client = dict[str, str]


@pytest.fixture(scope="module")
def broker() -> Iterator[SecuredKafka]:
    with SecuredKafka() as kafka:
        make_topic(KafkaOptions.parse({"kafka.bootstrap.servers": kafka.bootstrap}).kafka, TOPIC)
        yield kafka
        close_clusters()


@pytest.fixture(scope="module")
def new(broker: SecuredKafka) -> Callable[..., Client]:
    return Principals(broker).new


def given(client: Client, **more: str) -> dict[str, str]:
    return {**{f"kafka.{name}": value for name, value in client.items()}, **more}


def sink_of(client: Client, protocol: str, wal: Path | None = None) -> KafkaSink:
    """Of a protocol; after a hyphen, its producer."""
    protocol, _, producer = protocol.partition("-")
    more = {"topic": TOPIC, "registertopic": REGISTER, "protocol": protocol}
    if producer:
        more["producer"] = producer
    if protocol == "wal":
        assert wal is not None
        more["wal"] = wal.as_uri()
    return KeyedSink(KafkaOptions.parse(given(client, **more)), KEYED)


def epoch(sink: KafkaSink, job: str) -> None:
    """One epoch of one task, through register, writer and committer."""
    with closing(sink):
        Run(sink, job).epoch(0, [(1, job)])
        settle(sink._options.kafka)


def refused(call: Callable[[], object], client: Client, *named: str) -> RefusedError:
    with pytest.raises(AbsError) as caught:
        call()
    assert isinstance(caught.value, RefusedError), caught.value
    for text in (client["sasl.username"], *named):
        assert text in str(caught.value)
    assert client["sasl.password"] not in str(caught.value)
    return caught.value


@sample.cases(1)
@pytest.mark.parametrize(
    "protocol",
    ["2pc", "2pc-librdkafka", "wal", pytest.param("idempotent", marks=pytest.mark.campaign)],
)
def test_what_is_documented_is_all_that_a_job_needs(
    new: Callable[..., Client], protocol: str, tmp_path: Path
) -> None:
    client = new(*NEEDED[protocol.partition("-")[0]])
    job = f"all-{protocol}"
    sink = sink_of(client, protocol, tmp_path)
    wrong = [f.what for f in sink.preflight(job) if f.severity is Severity.ERROR]
    assert wrong == []
    epoch(sink, job)
    assert values(new, tmp_path).count(job) == 1


def test_a_missing_right_to_write_is_known_before_a_decision_that_other_targets_obey(
    broker: SecuredKafka, new: Callable[..., Client], tmp_path: Path
) -> None:
    client = new(allow("TOPIC", TOPIC, "DESCRIBE"), CELL, CELLS)
    more = {"topic": TOPIC, "registertopic": REGISTER, "protocol": "wal", "wal": tmp_path.as_uri()}
    options = KafkaOptions.parse(given(client, **more))
    job, store = "rehearsed", MemoryRegister()
    with closing(KeyedSink(options, KEYED, co_commit=False)) as sink:
        run = Run(sink, job, store=store)
        refused(lambda: run.epoch(0, [(1, job)]), client)
        assert (run.state().open, run.state().last_decided) == ((), None)
        Principals(broker).grant(client["sasl.username"], WRITES)
        Run(sink, job, store=store).epoch(0, [(1, job)])
    assert values(new, tmp_path).count(job) == 1


@sample.cases(4)
@pytest.mark.parametrize(
    ("protocol", "lacking", "named"),
    [
        ("2pc", WRITES, f"topic {TOPIC}"),
        ("2pc-librdkafka", WRITES, f"topic {TOPIC}"),
        ("2pc", ENDS, "transactional id abs1:"),
        ("2pc-librdkafka", ENDS, "transactional id abs1:"),
        pytest.param("2pc", CELL, "transactional id abs-register.", marks=pytest.mark.campaign),
        ("2pc", CELLS, f"topic {REGISTER}"),
        ("wal", CELL, "transactional id abs-register."),
        pytest.param("idempotent", CONFIGS, f"topic {TOPIC}", marks=pytest.mark.campaign),
        ("idempotent", WINNERS, f"topic {SIDE}"),
    ],
)
def test_what_is_lacking_is_found_by_preflight_and_named_by_the_job(
    new: Callable[..., Client],
    broker: SecuredKafka,
    protocol: str,
    lacking: Allowed,
    named: str,
    tmp_path: Path,
) -> None:
    client = new(*(each for each in NEEDED[protocol.partition("-")[0]] if each is not lacking))
    sink = sink_of(client, protocol, tmp_path)
    wrong = [f for f in sink.preflight("job") if f.severity is Severity.ERROR]
    assert any(named in f.what.lower() and client["sasl.username"] in f.what for f in wrong), wrong
    assert all(f.remedy for f in wrong)
    refused(lambda: epoch(sink, client["sasl.username"]), client, named)
    # With what was lacking it is well, without another process.
    Principals(broker).grant(client["sasl.username"], lacking)
    epoch(sink_of(client, protocol, tmp_path), client["sasl.username"])


def test_another_jobs_side_topic_need_not_be_described(
    new: Callable[..., Client], tmp_path: Path
) -> None:
    epoch(sink_of(new(*NEEDED["idempotent"]), "idempotent", tmp_path), "winner")
    client = new(*NEEDED["2pc"])
    for _ in range(2):  # the second start supersedes a run
        epoch(sink_of(client, "2pc"), "beside-it")
    assert values(new, tmp_path).count("beside-it") == 1


def test_a_password_is_taken_without_tls_too_and_a_wrong_one_is_refused(
    new: Callable[..., Client], broker: SecuredKafka, tmp_path: Path
) -> None:
    client = new(*NEEDED["2pc"])
    del client["ssl.ca.location"]
    client |= {
        "bootstrap.servers": broker.password_bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
    }
    epoch(sink_of(client, "2pc"), "no-tls")
    assert values(new, tmp_path).count("no-tls") == 1
    wrong = {**client, "sasl.password": "not-the-password"}
    with pytest.raises(RefusedError, match=r"kafka\.sasl") as caught:
        epoch(sink_of(wrong, "2pc"), "wrong")
    assert "not-the-password" not in str(caught.value)


@pytest.mark.parametrize(
    ("protocol", "named"), [("2pc", f"topic {TOPIC}"), ("2pc-librdkafka", f"to {TOPIC}-")]
)
def test_one_that_may_only_describe_the_topic_is_told_so(
    new: Callable[..., Client], protocol: str, named: str
) -> None:
    client = new(*NEEDED["2pc"][1:], allow("TOPIC", TOPIC, "DESCRIBE"))
    sink = sink_of(client, protocol)
    found = [f.what for f in sink.preflight("job") if f.severity is Severity.ERROR]
    assert found == [
        f"The principal (user {client['sasl.username']}) may not write to topic {TOPIC}."
    ]
    refused(lambda: epoch(sink, f"only-describes-{protocol}"), client, named, "WRITE")


def test_a_wrong_password_is_told_by_every_part(
    new: Callable[..., Client], broker: SecuredKafka, tmp_path: Path
) -> None:
    client = {**new(*NEEDED["2pc"], READS), "sasl.password": "geheim"}
    refused(lambda: sink_of(client, "2pc").target_id, client, "kafka.sasl.*")
    refused(lambda: sink_of(client, "2pc").register().load("job"), client)
    url = url_of(client, tmp_path, REGISTER)
    for command in (("in-doubt", "list"), ("register", "list")):
        said = abs_(*command, "--url", url)
        assert isinstance(said.exception, RefusedError), said
        assert "geheim" not in str(said.exception)
    with pytest.raises(RefusedError, match="uthentication"):
        relation([url_of(client, tmp_path, TOPIC)])


def test_certificates_that_nobody_vouches_for_are_told(new: Callable[..., Client]) -> None:
    client = new(*NEEDED["2pc"])
    del client["ssl.ca.location"]
    refused(lambda: sink_of(client, "2pc").target_id, client, "certificate", "kafka.ssl.*")


def test_the_source_needs_read_and_names_what_it_lacks(new: Callable[..., Client]) -> None:
    epoch(sink_of(new(*NEEDED["2pc"]), "2pc"), "something-to-read")
    side = allow("TOPIC", SIDE, "DESCRIBE")
    client = new(READS, side)
    assert read(client, winners="false") >= 0
    blind, nobody = new(READS), new()
    refused(lambda: read(blind), blind, SIDE, "winners=false")
    refused(lambda: read(nobody), nobody, f"topic {TOPIC}")
    describes = new(allow("TOPIC", TOPIC, "DESCRIBE"), side)
    refused(lambda: read(describes, winners="false"), describes, f"{TOPIC}-")


def test_the_command_line_goes_by_a_file_of_settings(
    new: Callable[..., Client], tmp_path: Path
) -> None:
    client = new(*NEEDED["2pc"])
    epoch(sink_of(client, "2pc"), "by-file")
    url = url_of(client, tmp_path, REGISTER)
    said = abs_("register", "list", "--url", url, "--json")
    assert said.exit_code == 0, said.output
    assert "by-file" in said.stdout
    lacking = new(WRITES)
    options = [
        text for pair in given(lacking, topic=TOPIC).items() for text in ("-o", "=".join(pair))
    ]
    doctor = abs_("doctor", *options, "--json")
    assert doctor.exit_code == 1
    what = [f["what"] for f in json.loads(doctor.stdout)["findings"] if f["severity"] == "error"]
    assert any("abs1:" in each for each in what)
    assert any("abs-register" in each for each in what)
    assert lacking["sasl.password"] not in doctor.output


def read(client: Client, **more: str) -> int:
    """How many rows the source reads."""
    options = given(client, subscribe=TOPIC, startingOffsets="earliest", **more)
    source = KafkaSource(KafkaSourceOptions.parse(options))
    start, rows = source.initial(), 0
    for split in source.splits(start, source.latest(start, Limit())):
        with closing(source.open(split)) as reader:
            while not reader.finished:
                batch = reader.read(1.0)
                rows += 0 if batch is None else batch.num_rows
    return rows


def values(new: Callable[..., Client], folder: Path) -> list[str]:
    """Of all committed records, as the audit's client reads them."""
    topic = relation([f"{url_of(new(READS), folder, TOPIC)}&value=raw&winners=false"])
    assert isinstance(topic, KafkaTopic)
    with duckdb.connect() as connection, topic.rows(connection, ["value"]) as found:
        return [bytes(value).decode() for (value,) in found.fetchall()]


def url_of(client: Client, folder: Path, topic: str) -> str:
    """For the command line, with a file that holds the password."""
    file = folder / "client.properties"
    file.write_text("".join(f"{k}={v}\n" for k, v in client.items() if k != "bootstrap.servers"))
    return f"kafka://{client['bootstrap.servers']}/{topic}?config={file}"
