"""Logins by token on a real broker: tokens and sessions run out under an open transaction, the token
server goes away, refuses, or hands out what the broker refuses; nothing is lost."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, nullcontext
from multiprocessing.connection import Connection
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import duckdb
import pytest

from abs_audit.kafka import KafkaTopic
from abs_audit.locate import relation
from abs_clients.kafka import login
from abs_clients.kafka.cluster import close_clusters
from abs_clients.kafka.login import login_of
from abs_clients.kafka.transactions import State
from abs_core.errors import AbsError, RefusedError, UnavailableError
from abs_core.patience import Patience
from abs_core.source import Limit
from abs_sinks.kafka import KafkaOptions
from abs_sources.kafka import KafkaSource, KafkaSourceOptions
from abs_testing.case import within
from abs_testing.engine import Run
from tests.kit import token_functions
from tests.kit.command import abs_
from tests.kit.kafka import KEYED, KeyedSink, TopicHarness, Variant, open_topic, send_now
from tests.kit.kafka_reading import settle
from tests.kit.kafka_tokens import TokenKafka
from tests.kit.token_server import TokenServer

pytestmark = [pytest.mark.services, pytest.mark.long]

SHORT, LONG = 6, 300
"""Seconds that tokens live which are to run out in a test, and others. A broker's session ends with its
token. On a busy machine a short one runs out between any two steps."""

PRODUCERS = ("columnar", "librdkafka")
SLOWER = ("columnar", pytest.param("librdkafka", marks=pytest.mark.campaign))


@pytest.fixture(scope="module")
def server() -> Iterator[TokenServer]:
    with TokenServer() as served:
        yield served


@pytest.fixture(scope="module")
def broker(server: TokenServer) -> Iterator[TokenKafka]:
    with TokenKafka(server) as kafka:
        yield kafka
        close_clusters()


@pytest.fixture
def harness(broker: TokenKafka, server: TokenServer) -> Iterator[TopicHarness]:
    """Looks by the open listener; its topic is fresh, and so is each test's login."""
    server.life, server.audience, server.status = LONG, "kafka", 200
    with open_topic(broker.bootstrap, Variant("2pc")) as opened:
        yield opened
    if server._server is None:
        server.start()


def options(
    harness: TopicHarness, broker: TokenKafka, server: TokenServer, **more: str
) -> KafkaOptions:
    client = server.settings(broker.token_bootstrap) | {"client.id": harness.topic}
    return KafkaOptions.parse(
        {f"kafka.{name}": value for name, value in client.items()}
        | {"topic": harness.topic, "registertopic": f"{harness.topic}-register", "protocol": "2pc"}
        | more
    )


def expired(server: TokenServer, since: float) -> Callable[[], bool]:
    """Whether every token and session from before ``since`` has run out."""
    return lambda: time.time() > since + server.life + 1


@pytest.mark.parametrize("life", [SHORT, pytest.param(30, marks=pytest.mark.campaign)])
def test_tokens_and_sessions_run_out_under_an_open_transaction(
    broker: TokenKafka, server: TokenServer, life: int
) -> None:
    """Of both producers at once: they wait for the same time to pass."""
    server.life, server.audience, server.status = life, "kafka", 200
    with ExitStack() as stack:
        harnesses = [
            stack.enter_context(open_topic(broker.bootstrap, Variant("2pc"))) for _ in PRODUCERS
        ]
        jobs = [
            _outlives(options(harness, broker, server, producer=producer))
            for harness, producer in zip(harnesses, PRODUCERS, strict=True)
        ]
        assert [next(job) for job in jobs] == ["open", "open"]
        asked = len(server.tokens)
        assert within(90, expired(server, time.time()))
        assert [next(job) for job in jobs] == ["pre-committed", "pre-committed"]
        assert within(90, expired(server, time.time()))
        assert [next(job) for job in jobs] == ["committed", "committed"]
        assert len(server.tokens) >= asked + len(jobs), "tokens were renewed"
        rows = [(1, "first"), (2, "before"), (3, "after"), (4, "next")]
        assert [sorted(harness.read()) for harness in harnesses] == [rows, rows]


def _outlives(given: KafkaOptions) -> Iterator[str]:
    """A job that stands still where tokens are to run out; yields what its transaction is."""
    with closing(KeyedSink(given, KEYED)) as sink:
        run = Run(sink, "job")
        run.epoch(0, [(1, "first")])
        attempt = run.attempt(1).write((2, "before"))
        send_now(attempt.writer)
        yield "open"
        attempt.write((3, "after"))
        wrote = [attempt.pre_commit()]
        yield "pre-committed"
        run.commit(1, wrote)
        run.epoch(2, [(4, "next")])
    yield "committed"


def test_a_killed_job_is_recovered_with_tokens_of_its_own(
    harness: TopicHarness, broker: TokenKafka, server: TokenServer
) -> None:
    given = options(harness, broker, server)
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    worker = context.Process(target=_work, args=(given, theirs))
    worker.start()
    assert ours.poll(90), "the worker has pre-committed"
    assert worker.pid is not None
    os.kill(worker.pid, signal.SIGKILL)
    worker.join()
    assert harness.open_ids((State.ONGOING,)), "its transaction is open"
    with closing(KeyedSink(given, KEYED)) as sink:
        Run(sink, "job").epoch(1, [(2, "again")])
        assert within(60, lambda: not harness.open_ids((State.ONGOING,)))
    assert sorted(harness.read()) == [(1, "first"), (2, "again")]


def _work(given: KafkaOptions, done: Connection) -> None:
    run = Run(KeyedSink(given, KEYED), "job")
    run.epoch(0, [(1, "first")])
    run.attempt(1).write((2, "lost")).pre_commit()
    done.send("written")
    signal.pause()


@pytest.mark.parametrize("producer", SLOWER)
def test_a_token_server_that_is_away_is_waited_for_and_nothing_is_lost(
    harness: TopicHarness, broker: TokenKafka, server: TokenServer, producer: str
) -> None:
    server.life = SHORT
    given = options(harness, broker, server, producer=producer)
    with closing(KeyedSink(given, KEYED)) as sink:
        Run(sink, "job").epoch(0, [(1, "first")])
        run = Run(sink, "job", patience=Patience(seconds=2.0))
        since = time.time()
        server.stop()
        assert within(60, expired(server, since))
        with pytest.raises(UnavailableError) as caught:
            KeyedSink(options(harness, broker, server, producer=producer), KEYED).preflight("job")
        assert "token server" in str(caught.value)
        with pytest.raises(AbsError) as failed:
            run.epoch(1, [(2, "given up")])
        assert failed.value.retryable, failed.value
        server.start()
        Run(sink, "job", patience=Patience(seconds=60.0)).epoch(1, [(2, "second")])
    assert sorted(harness.read()) == [(1, "first"), (2, "second")]


class Lying(TokenServer):
    """Its tokens end before the end that it tells: one is revoked, say, or its key is replaced."""

    def answer(self, login: str, form: dict[str, list[str]]) -> tuple[int, dict[str, Any]]:
        status, body = super().answer(login, form)
        return status, body | ({"expires_in": 900} if "expires_in" in body else {})


@pytest.mark.campaign
@pytest.mark.parametrize("planted", [False, True], ids=["sound", "planted"])
@pytest.mark.parametrize("way", ["2pc-columnar", "2pc-librdkafka", "idempotent-librdkafka"])
def test_a_token_that_ends_before_its_told_end_is_replaced_within_an_epoch(
    way: str, planted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: an open client of librdkafka keeps its token as long as that is told to live."""
    protocol, producer = way.split("-")
    if planted:
        monkeypatch.setattr(login, "SERVED_SECONDS", 900.0)
    with Lying() as server, TokenKafka(server) as broker:
        server.life = 2 * SHORT
        with open_topic(broker.bootstrap, Variant("2pc")) as harness:
            given = options(harness, broker, server, protocol=protocol, producer=producer)
            with closing(KeyedSink(given, KEYED)) as sink:
                run, number = Run(sink, "job", patience=Patience(seconds=25.0)), 0
                until = time.time() + 5 * server.life
                with pytest.raises(AbsError) if planted else nullcontext():
                    while time.time() < until:
                        run.epoch(number, [(number, "x")])
                        number += 1
                        assert not within(1.0, lambda: False)
                if not planted:
                    assert len(server.tokens) >= 3
                    assert sorted(key for key, _ in harness.read()) == list(range(number))
        close_clusters()


@pytest.mark.parametrize("producer", SLOWER)
def test_a_client_that_is_no_longer_let_in_is_told_so_and_nothing_is_lost(
    harness: TopicHarness, broker: TokenKafka, server: TokenServer, producer: str
) -> None:
    given = options(harness, broker, server, producer=producer)
    with closing(KeyedSink(given, KEYED)) as sink:
        Run(sink, "job").epoch(0, [(1, "first")])
    server.status = 403
    login = login_of(given.kafka)
    assert login is not None
    login.close()
    close_clusters(given.kafka)
    with pytest.raises(RefusedError, match="answered 403") as caught:
        Run(KeyedSink(given, KEYED), "job")
    assert_no_secret(caught.value, server)
    server.status = 200
    with closing(KeyedSink(given, KEYED)) as sink:
        Run(sink, "job").epoch(1, [(2, "second")])
    assert sorted(harness.read()) == [(1, "first"), (2, "second")]


def test_a_token_for_another_audience_is_refused_by_every_part(
    harness: TopicHarness, broker: TokenKafka, server: TokenServer, tmp_path: Path
) -> None:
    server.audience = "another"
    given = options(harness, broker, server)
    url = url_of(given, harness.topic, tmp_path)
    for call in (
        lambda: KeyedSink(given, KEYED).target_id,
        lambda: KeyedSink(given, KEYED).register().load("job"),
        lambda: read(given, harness.topic),
        lambda: relation([url]),
    ):
        with pytest.raises(RefusedError, match=f"client {server.client}") as caught:
            call()
        assert_no_secret(caught.value, server)
    server.audience = "kafka"
    with closing(KeyedSink(given, KEYED)) as sink:
        Run(sink, "job").epoch(0, [(1, "first")])
    assert harness.read() == [(1, "first")], "the refused token was forgotten"


def test_source_audit_and_command_line_log_in_by_a_function(
    harness: TopicHarness,
    broker: TokenKafka,
    server: TokenServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ABS_TEST_TOKENS", f"{server.url}/token {server.client} {server.secret}")
    given = KafkaOptions.parse(
        {
            "kafka.bootstrap.servers": broker.token_bootstrap,
            "kafka.security.protocol": "SASL_PLAINTEXT",
            "kafka.sasl.mechanism": "OAUTHBEARER",
            "kafka.oauth_cb": "tests.kit.token_functions:of_server",
            "topic": harness.topic,
            "registertopic": f"{harness.topic}-register",
            "protocol": "2pc",
        }
    )
    with closing(KeyedSink(given, KEYED)) as sink:
        Run(sink, "job").epoch(0, [(1, "first"), (2, "second")])
    assert read(given, harness.topic) == 2
    topic = relation([f"{url_of(given, harness.topic, tmp_path)}&value=raw"])
    assert isinstance(topic, KafkaTopic)
    with duckdb.connect() as connection, topic.rows(connection, ["value"]) as found:
        assert sorted(found.fetchall()) == [(b"first",), (b"second",)]
    url = url_of(given, given.registertopic, tmp_path)
    said = abs_("register", "list", "--url", url)
    assert said.exit_code == 0, said.output


@pytest.mark.parametrize("producer", SLOWER)
def test_a_job_with_iam_logs_in_everywhere_with_what_the_signer_gives(
    harness: TopicHarness,
    broker: TokenKafka,
    server: TokenServer,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    producer: str,
) -> None:
    """The signer is stood in for, and gives tokens that this broker takes."""
    server.life = SHORT

    def sign(region: str) -> tuple[str, int]:
        assert region == "eu-west-1"
        text, expires = token_functions.of_server("")
        return text, int(expires * 1000)

    monkeypatch.setenv("ABS_TEST_TOKENS", f"{server.url}/token {server.client} {server.secret}")
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    module = SimpleNamespace(MSKAuthTokenProvider=SimpleNamespace(generate_auth_token=sign))
    monkeypatch.setitem(sys.modules, "aws_msk_iam_sasl_signer", module)
    client = {
        "kafka.bootstrap.servers": broker.token_bootstrap,
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "AWS_MSK_IAM",
        "kafka.client.id": harness.topic,
    }
    more = {"topic": harness.topic, "registertopic": f"{harness.topic}-register"}
    given = KafkaOptions.parse({**client, **more, "protocol": "2pc", "producer": producer})
    with closing(KeyedSink(given, KEYED)) as sink:
        assert [f for f in sink.preflight("job") if f.severity == "error"] == []
        run = Run(sink, "job")
        run.epoch(0, [(1, "first")])
        attempt = run.attempt(1).write((2, "before"))
        send_now(attempt.writer)
        asked = len(server.tokens)
        assert within(60, expired(server, time.time()))
        run.commit(1, [attempt.write((3, "after")).pre_commit()])
        assert len(server.tokens) > asked, "tokens were renewed"
    assert sorted(harness.read()) == [(1, "first"), (2, "before"), (3, "after")]
    assert read(given, harness.topic) == 3
    assert isinstance(relation([url_of(given, harness.topic, tmp_path)]), KafkaTopic)


def assert_no_secret(error: AbsError, server: TokenServer) -> None:
    assert server.secret not in str(error)
    assert not [token for token in server.tokens if token in str(error)]


def url_of(given: KafkaOptions, topic: str, folder: Path) -> str:
    file = folder / f"{topic}.properties"
    pairs = [pair for pair in given.kafka.pairs if pair[0] != "bootstrap.servers"]
    file.write_text("".join(f"{name}={value}\n" for name, value in pairs))
    return f"kafka://{given.kafka.bootstrap}/{topic}?config={file}"


def read(given: KafkaOptions, topic: str) -> int:
    """How many rows the source reads."""
    settle(given.kafka)
    client = {f"kafka.{name}": value for name, value in given.kafka.pairs}
    source = KafkaSource(
        KafkaSourceOptions.parse(
            {**client, "subscribe": topic, "startingOffsets": "earliest", "winners": "false"}
        )
    )
    start, rows = source.initial(), 0
    for split in source.splits(start, source.latest(start, Limit())):
        with closing(source.open(split)) as reader:
            while not reader.finished:
                batch = reader.read(1.0)
                rows += 0 if batch is None else batch.num_rows
    return rows
