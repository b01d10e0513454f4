"""A new topic or bucket for one test, deleted afterwards; a database: ``abs_services``."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from urllib.parse import urlencode

from abs_services import KafkaService, S3Service

PARTITIONS = 2


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic; ``url`` is for the audit."""

    bootstrap: str
    name: str

    @property
    def url(self) -> str:
        return f"kafka://{self.bootstrap}/{self.name}"


@dataclass(frozen=True, slots=True)
class Bucket:
    """A bucket; ``url`` is for the audit, ``environment`` has the variables that clients read."""

    endpoint: str
    name: str
    region: str
    environment: Mapping[str, str] = field(repr=False)

    @property
    def url(self) -> str:
        query = urlencode({"endpoint": self.endpoint, "region": self.region})
        return f"s3://{self.name}?{query}"


@contextmanager
def fresh_topic(server: KafkaService) -> Iterator[Topic]:
    """A new topic of two partitions. A server that is down is started."""
    from confluent_kafka.admin import (  # type: ignore[attr-defined] # they are there
        AdminClient,
        NewTopic,
    )

    server.start()
    name = f"t-{secrets.token_hex(6)}"
    admin = AdminClient({"bootstrap.servers": server.bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(name, PARTITIONS)])[name].result(60)
    try:
        yield Topic(server.bootstrap, name)
    finally:
        server.start()
        admin.delete_topics([name])[name].result(60)


@contextmanager
def fresh_bucket(server: S3Service) -> Iterator[Bucket]:
    """A new bucket. A server that is down is started."""
    from abs_services.buckets import s3_client

    server.start()
    name = f"t-{secrets.token_hex(6)}"
    with closing(s3_client(server)) as client:
        client.create_bucket(Bucket=name)
        try:
            environment = {**server.env, "ABS_S3_BUCKET": name, "AWS_EC2_METADATA_DISABLED": "true"}
            yield Bucket(server.endpoint, name, server.region, environment)
        finally:
            server.start()
            for upload in client.list_multipart_uploads(Bucket=name).get("Uploads", []):
                client.abort_multipart_upload(
                    Bucket=name, Key=upload["Key"], UploadId=upload["UploadId"]
                )
            for page in client.get_paginator("list_objects_v2").paginate(Bucket=name):
                for entry in page.get("Contents", []):
                    client.delete_object(Bucket=name, Key=entry["Key"])
            client.delete_bucket(Bucket=name)
