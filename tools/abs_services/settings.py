"""Settings of the servers, the same natively and in containers."""

from __future__ import annotations

import base64
import secrets
from collections.abc import Mapping

POSTGRES: Mapping[str, str] = {
    "max_prepared_transactions": "64",
    "max_connections": "100",
    "fsync": "on",
    "timezone": "UTC",
    # In its data folder: the default, in /dev/shm, stays there for ever when a server is killed.
    "dynamic_shared_memory_type": "mmap",
}

# One node cannot replicate; few internal partitions load fast; a killed broker is let back in
# after one session timeout (4 s; 12.6 s with the defaults). Timeouts of transactions are looked for
# every second instead of every ten.
KAFKA: Mapping[str, str] = {
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "4",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    "group.initial.rebalance.delay.ms": "0",
    # An idle broker would write, and flush, a record every half second.
    "metadata.max.idle.interval.ms": "0",
    # Each idle thread of these wakes three to five times a second, and a few clients use no more.
    "num.io.threads": "2",
    "num.network.threads": "2",
    "group.coordinator.threads": "1",
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "500",
}

# Written once the controller has let the broker in and all listeners are open.
KAFKA_READY = "Kafka Server started"

S3_FLAGS = (
    # Without it the server calls home.
    "-master.telemetry=false",
    # One master, which need not look for others: up in 2.5 s, else in 3.5 or 8.3 s by chance.
    "-master.peers=none",
    "-master.electionTimeout=200ms",
    "-master.heartbeatInterval=50ms",
    # Small files on the disk, at most 1.25 GiB.
    "-master.volumeSizeLimitMB=64",
    "-volume.max=20",
    "-volume.preStopSeconds=0",
    # These would listen on fixed ports.
    "-s3.port.iceberg=0",
    "-s3.port.lance=0",
    "-s3.iam=false",
)

# SeaweedFS takes 15 s to hang up on idle connections; its data is with the system by then.
S3_STOP_S = 2.0


def s3_credentials(access_key: str, secret_key: str) -> Mapping[str, object]:
    """The file for ``-s3.config``: one identity that may do everything. Others are refused."""
    return {
        "identities": [
            {
                "name": "abs",
                "credentials": [{"accessKey": access_key, "secretKey": secret_key}],
                "actions": ["Admin", "Read", "List", "Tagging", "Write"],
            }
        ]
    }


def new_cluster_id() -> str:
    """Like Kafka's random uuids: 16 bytes, URL-safe base64, no padding, no leading dash."""
    made = "-"
    while made.startswith("-"):
        made = base64.urlsafe_b64encode(secrets.token_bytes(16)).decode().rstrip("=")
    return made
