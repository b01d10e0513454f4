"""Brokers that ask clients for a certificate (mutual TLS): a job goes through with one, by what its
principal may do; without one, every part of it says so within seconds."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from typer.testing import Result

from abs_audit.locate import relation
from abs_clients.kafka.cluster import close_clusters
from abs_core.errors import OptionError, RefusedError
from abs_core.model import Severity
from abs_sinks.kafka import KafkaOptions
from abs_testing.cuts import Cut, Halted
from abs_testing.engine import Run
from tests import sample
from tests.kit.command import abs_
from tests.kit.kafka import make_topic
from tests.kit.kafka_secured import SecuredKafka
from tests.sinks.kafka.certificates import Authority, Certified, Rotated
from tests.sinks.kafka.secured import Principals, allow
from tests.sinks.kafka.test_kafka_secured import (
    NEEDED,
    READS,
    REGISTER,
    SIDE,
    TOPIC,
    Client,
    epoch,
    read,
    sink_of,
    url_of,
)

pytestmark = [
    pytest.mark.services,
    pytest.mark.skipif(shutil.which("openssl") is None, reason="it makes the certificates"),
]

SECONDS = 60.0
"""A refusal takes no longer than a request to a broker may: 10 seconds, and more on a busy machine."""


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates") / "known")


@pytest.fixture(scope="module")
def broker(authority: Authority) -> Iterator[SecuredKafka]:
    with SecuredKafka(authority.certificate) as kafka:
        make_topic(KafkaOptions.parse({"kafka.bootstrap.servers": kafka.bootstrap}).kafka, TOPIC)
        yield kafka
        close_clusters()


@pytest.fixture(scope="module")
def me(broker: SecuredKafka, authority: Authority) -> Certified:
    """A client that may do what is documented, for all protocols and the source."""
    made = authority.new()
    needed = {each for protocol in NEEDED.values() for each in protocol}
    side = allow("TOPIC", SIDE, "DESCRIBE")
    Principals(broker).grant(made.principal, *needed, READS, side)
    return made


@sample.cases(2)
@pytest.mark.parametrize("protocol", ["2pc", "2pc-librdkafka", "wal", "idempotent"])
def test_a_job_goes_through_with_its_certificate_and_what_is_documented(
    broker: SecuredKafka, me: Certified, protocol: str, tmp_path: Path
) -> None:
    client, job = me.client(broker), f"certified-{protocol}"
    sink = sink_of(client, protocol, tmp_path)
    assert [f.what for f in sink.preflight(job) if f.severity is Severity.ERROR] == []
    before = read(client, winners="false")
    epoch(sink, job)
    assert read(client, winners="false") == before + 1
    stored = sink_of(client, "2pc").register().load(job)
    assert stored is not None
    assert stored.state.frontier == 0


CELLS = ["2pc", "2pc-librdkafka", "wal", "wal-librdkafka", "idempotent", "idempotent-librdkafka"]


@sample.cases(2)
@pytest.mark.parametrize("protocol", CELLS)
def test_a_job_goes_on_by_the_certificate_that_is_in_the_file(
    broker: SecuredKafka, authority: Authority, protocol: str, tmp_path: Path
) -> None:
    rotated = Rotated(broker, authority, tmp_path)
    sink = sink_of(rotated.client, protocol, tmp_path)
    with closing(sink):
        run = Run(sink, f"rotated-{protocol}-{tmp_path.name}")
        run.epoch(0, [(0, "a"), (1, "b")])
        rotated.rotate()
        run.epoch(1, [(2, "c")])
        run.epoch(2, [(3, "d")])
        rotated.rotate()
        run.epoch(3, [(4, "e")])
        stored = sink.register().load(f"rotated-{protocol}-{tmp_path.name}")
    assert stored is not None
    assert stored.state.frontier == 3


def test_what_is_in_doubt_is_listed_and_committed_through_it(
    broker: SecuredKafka, me: Certified, tmp_path: Path
) -> None:
    client, job = me.client(broker), "in-doubt"
    before = read(client, winners="false")
    run = Run(sink_of(client, "2pc"), job, cut=Cut("commit"))
    with pytest.raises(Halted):
        run.epoch(0, [(1, job)])
    url = url_of(client, tmp_path, REGISTER)
    (listed,) = json.loads(in_doubt("list", "--json", url=url).stdout)
    assert (listed["job"], listed["fate"]) == (job, "decided: will be committed")
    assert in_doubt("commit", job, url=url).exit_code == 0
    assert read(client, winners="false") == before + 1
    assert in_doubt("list", url=url).exit_code == 0


def test_the_key_may_have_a_password_and_both_may_be_given_as_text(
    broker: SecuredKafka, me: Certified
) -> None:
    client = me.client(broker)
    locked = {"ssl.key.location": str(me.locked), "ssl.key.password": me.password}
    epoch(sink_of(client | locked, "2pc"), "locked")
    plain = {n: v for n, v in client.items() if n not in ("ssl.key.location", CERTIFICATE)}
    shown, key = me.certificate.read_text(), me.key.read_text()
    epoch(sink_of(plain | {"ssl.certificate.pem": shown, "ssl.key.pem": key}, "2pc"), "text")
    epoch(sink_of(plain | {CERTIFICATE: str(me.certificate), "ssl.key.pem": key}, "2pc"), "half")


CERTIFICATE = "ssl.certificate.location"

PARTS: dict[str, Callable[[Client, Path], object]] = {
    "sink": lambda client, _: epoch(sink_of(client, "2pc"), "let-in-nowhere"),
    "register": lambda client, _: sink_of(client, "2pc").register().load("job"),
    "preflight": lambda client, _: sink_of(client, "2pc").preflight("job"),
    "source": lambda client, _: read(client, winners="false"),
    "audit": lambda client, folder: relation([url_of(client, folder, TOPIC)]),
    "command": lambda client, folder: raised(
        in_doubt("list", url=url_of(client, folder, REGISTER))
    ),
}


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("whose", ["nobody's", "a stranger's"])
def test_without_a_certificate_that_the_brokers_know_each_part_says_so_and_does_not_hang(
    broker: SecuredKafka, whose: str, part: str, tmp_path: Path
) -> None:
    stranger = Authority(tmp_path / "unknown").new().client(broker)
    nobody = {n: v for n, v in stranger.items() if n not in (CERTIFICATE, "ssl.key.location")}
    begin = time.monotonic()
    with pytest.raises(RefusedError, match="certificate") as caught:
        PARTS[part](nobody if whose == "nobody's" else stranger, tmp_path)
    assert time.monotonic() - begin < SECONDS
    assert "ssl.certificate.location" in str(caught.value)


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("password", [None, "geheim"])
def test_a_key_that_cannot_be_opened_is_an_error_of_the_options(
    broker: SecuredKafka, me: Certified, password: str | None, part: str, tmp_path: Path
) -> None:
    client = me.client(broker) | {"ssl.key.location": str(me.locked)}
    client |= {} if password is None else {"ssl.key.password": password}
    with pytest.raises(OptionError) as caught:
        PARTS[part](client, tmp_path)
    assert "ssl.key" in str(caught.value)
    assert "geheim" not in str(caught.value)


def in_doubt(*arguments: str, url: str) -> Result:
    return abs_("in-doubt", *arguments, "--url", url)


def raised(result: Result) -> None:
    assert result.exception is not None
    raise result.exception
