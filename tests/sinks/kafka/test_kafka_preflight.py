"""A preflight finds what would break the promise, and says what to do."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest
from kafka.admin import ConfigResource, ConfigResourceType

from abs_clients.kafka.attempts import side_topic
from abs_clients.kafka.cluster import cluster
from abs_clients.kafka.cluster_facts import ClusterFacts
from abs_clients.kafka.topics import TopicFacts
from abs_core.errors import IdentityError
from abs_core.model import Finding, Severity
from abs_services import KafkaService
from abs_sinks.kafka import KafkaOptions, KafkaSink
from abs_sinks.kafka.preflight import findings_of_cluster, findings_of_topic
from abs_sinks.kafka.preflight_state import findings_of_replicas
from tests.kit.kafka import make_topic

OPTIONS = KafkaOptions.parse({"kafka.bootstrap.servers": "a:1", "topic": "t"})
CLUSTER = ClusterFacts(
    3,
    (("transaction.max.timeout.ms", "900000"), ("transactional.id.expiration.ms", "604800000")),
    2,
    True,
    TopicFacts("__transaction_state", 50, 3),
)
TOPIC = TopicFacts(
    "t",
    4,
    3,
    frozenset({"READ", "WRITE", "DESCRIBE"}),
    (("cleanup.policy", "delete"), ("max.message.bytes", "1048588"), ("min.insync.replicas", "2")),
)


def with_timeout(milliseconds: int) -> KafkaOptions:
    given = {
        "kafka.bootstrap.servers": "a:1",
        "topic": "t",
        "kafka.transaction.timeout.ms": str(milliseconds),
    }
    return KafkaOptions.parse(given)


def with_msk() -> KafkaOptions:
    given = {"kafka.bootstrap.servers": "a:1", "topic": "t"}
    login = {"kafka.security.protocol": "sasl_ssl", "kafka.sasl.mechanism": "AWS_MSK_IAM"}
    return KafkaOptions.parse(given | login)


def errors(findings: list[Finding]) -> list[str]:
    return [finding.what for finding in findings if finding.severity is Severity.ERROR]


def warnings(findings: list[Finding]) -> list[str]:
    return [finding.what for finding in findings if finding.severity is Severity.WARNING]


def test_a_sound_cluster_and_topic_give_nothing_to_worry_about() -> None:
    findings = [*findings_of_cluster(CLUSTER, OPTIONS), *findings_of_topic(TOPIC, OPTIONS)]
    assert [f for f in findings if f.severity is not Severity.NOTE] == []


@pytest.mark.parametrize(
    ("cluster", "options", "named"),
    [
        (CLUSTER, with_timeout(900_001), "allow 900000 at most"),
        (CLUSTER, with_timeout(240_000), "no epoch can be decided"),
        (replace(CLUSTER, can_end=False), OPTIONS, "cannot describe"),
        (replace(CLUSTER, since_3_8=False), with_msk(), "older than 3.8"),
    ],
)
def test_a_cluster_that_cannot_keep_the_promise_is_an_error(
    cluster: ClusterFacts, options: KafkaOptions, named: str
) -> None:
    (what,) = errors(list(findings_of_cluster(cluster, options)))
    assert named in what


@pytest.mark.parametrize(
    ("cluster", "options", "named"),
    [
        (CLUSTER, with_timeout(400_000), "down for longer"),
        (replace(CLUSTER, state=TopicFacts("s", 50, 1)), OPTIONS, "1 replica(s) on 3 brokers"),
        (
            replace(CLUSTER, configs=(("transactional.id.expiration.ms", "3600000"),)),
            OPTIONS,
            "the proof of that commit is gone",
        ),
        (
            replace(CLUSTER, configs=(("unclean.leader.election.enable", "true"),)),
            replace(OPTIONS, topic=None),
            "unclean",
        ),
    ],
)
def test_what_weakens_the_promise_is_a_warning(
    cluster: ClusterFacts, options: KafkaOptions, named: str
) -> None:
    (what,) = warnings(list(findings_of_cluster(cluster, options)))
    assert named in what


@pytest.mark.parametrize(
    ("topic", "named"),
    [
        (None, "does not exist"),
        (replace(TOPIC, operations=frozenset({"READ"})), "may not write"),
    ],
)
def test_a_topic_that_takes_no_records_is_an_error(topic: TopicFacts | None, named: str) -> None:
    (what,) = errors(list(findings_of_topic(topic, OPTIONS)))
    assert named in what


def test_a_topic_of_small_batches_is_an_error_to_a_producer_that_does_not_ask() -> None:
    small = replace(TOPIC, configs=(("max.message.bytes", "1000"),))
    assert errors(list(findings_of_topic(small, OPTIONS))) == []
    (what,) = errors(list(findings_of_topic(small, replace(OPTIONS, producer="librdkafka"))))
    assert "would refuse them" in what


def test_a_compacted_topic_is_no_error_where_no_losers_are_written() -> None:
    compacted = replace(TOPIC, configs=(("cleanup.policy", "compact"),))
    assert errors(list(findings_of_topic(compacted, OPTIONS))) == []


UNCLEAN = (("min.insync.replicas", "2"), ("unclean.leader.election.enable", "true"))
ONE_NEEDED = (("min.insync.replicas", "1"), ("unclean.leader.election.enable", "false"))


@pytest.mark.parametrize(("configs", "named"), [(UNCLEAN, "unclean"), (ONE_NEEDED, "min.insync")])
def test_a_topic_that_may_forget_a_decision_is_refused(
    configs: tuple[tuple[str, str], ...], named: str
) -> None:
    """Of the data it is the operator's choice, and said."""
    weak = replace(TOPIC, configs=configs)
    (what,) = errors(list(findings_of_replicas([weak], [TOPIC])))
    assert named in what
    assert errors(list(findings_of_replicas([TOPIC], [weak]))) == []
    (what,) = warnings(list(findings_of_replicas([TOPIC], [weak])))
    assert named in what


def test_single_replicas_are_told_once_and_refuse_nothing() -> None:
    """As on the broker of ``abs up``."""
    alone = replace(TOPIC, replicas=1, configs=ONE_NEEDED)
    findings = list(findings_of_replicas([replace(alone, name="register")], [alone]))
    (what,) = warnings(findings)
    assert "register, t" in what
    assert errors(findings) == []


@pytest.mark.services
@pytest.mark.parametrize("protocol", ["2pc", "idempotent"])
def test_unclean_election_of_a_topic_that_holds_decisions_is_refused(
    kafka: KafkaService, topic: str, protocol: str
) -> None:
    """``abs up``'s own broker gives one warning, of its one replica."""
    kafka.start()
    given = {
        "kafka.bootstrap.servers": kafka.bootstrap,
        "topic": topic,
        "registertopic": f"register-{topic}",
        "protocol": protocol,
    }
    options = KafkaOptions.parse(given)
    make_topic(options.kafka, topic)
    sink = KafkaSink(options, pa.schema([("value", pa.string())]))
    kept = [options.registertopic] if protocol == "2pc" else [side_topic(topic)]
    make_topic(options.kafka, options.registertopic, 4, {"cleanup.policy": "compact"})
    make_topic(options.kafka, side_topic(topic), 1, {"retention.ms": "-1"})
    findings = list(sink.preflight("job"))
    assert errors(findings) == []
    assert sum("one replica" in what for what in warnings(findings)) == 1
    for name in kept:
        unclean = {"unclean.leader.election.enable": "true"}
        resource = ConfigResource(ConfigResourceType.TOPIC, name, unclean)
        cluster(options.kafka).client().alter_configs([resource])
    told = errors(list(sink.preflight("job")))
    assert [name for name in kept if any(f"topic {name} is true" in what for what in told)] == kept


@pytest.mark.services
def test_a_real_broker_is_looked_at_without_changing_it(
    kafka: KafkaService, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("abs_clients.kafka.timeouts.UNHEARD_PAUSES", ())
    given = {"kafka.bootstrap.servers": kafka.bootstrap, "topic": topic}
    schema = pa.schema([("value", pa.string()), ("id", pa.int64())])
    sink = KafkaSink(KafkaOptions.parse(given), schema)
    assert any("does not exist" in what for what in errors(list(sink.preflight("job"))))

    def committed() -> None:
        raise IdentityError("It has committed.", remedy="look for the topic.")

    sink.if_missing(committed)
    with pytest.raises(IdentityError):
        sink.preflight("job")
    make_topic(KafkaOptions.parse(given).kafka, topic)
    findings = list(sink.preflight("job", tasks=4))
    assert errors(findings) == []
    assert any("not written: id" in what for what in warnings(findings))
    too_long = KafkaOptions.parse({**given, "kafka.transaction.timeout.ms": "86400000"})
    assert errors(list(KafkaSink(too_long, schema).preflight("job")))
