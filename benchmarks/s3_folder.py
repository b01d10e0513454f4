"""An S3 server for the benchmarks, and folders on it."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from abs_clients.s3.client import close_idle
from abs_clients.s3.location import OURS
from abs_clients.s3.objects import Objects
from abs_services import S3Service, services
from abs_services.buckets import s3_client
from abs_services.native.lifecycle import NativeService
from abs_sinks.s3 import S3Options, committed_files


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder that rows arrive in, as Parquet files of any sink.

    Args:
        pid: as ``Arrivals.pid``; the server is a child of this process and counted anyway.
    """

    service: S3Service
    bucket: str
    prefix: str = "rows"
    pid: int | None = None

    @property
    def options(self) -> dict[str, str]:
        """For the sink ``abs-s3``."""
        return {
            "path": f"s3://{self.bucket}/{self.prefix}",
            "endpoint": self.service.endpoint,
            "region": self.service.region,
        }

    def files(self) -> list[str]:
        """The keys of data files, committed or not."""
        options = S3Options.parse(self.options)
        ours = options.path.key(OURS, "")
        keys = [found.key for found in Objects(options.bucket).list(options.path.folder)]
        return [key for key in keys if key.endswith(".parquet") and not key.startswith(ours)]

    def count(self) -> int:
        """Rows in all data files: those of ``idempotent`` as its manifests name them."""
        options = S3Options.parse(self.options)
        by_manifest = [file.key for file in committed_files(options)]
        return sum(self._rows(options, key) for key in {*by_manifest, *self.files()})

    def _rows(self, options: S3Options, key: str) -> int:
        body = Objects(options.bucket).get(key)
        assert body is not None, f"{key} is gone"
        return int(pq.ParquetFile(pa.BufferReader(body.data)).metadata.num_rows)


@contextmanager
def s3_server() -> Iterator[S3Service]:
    """A server, whose keys are in the environment."""
    with services().s3() as service:
        os.environ["AWS_ACCESS_KEY_ID"] = service.access_key
        os.environ["AWS_SECRET_ACCESS_KEY"] = service.secret_key
        close_idle()
        yield service
        close_idle()
        if isinstance(service, NativeService):
            service.kill()  # it would take seconds to hang up


@contextmanager
def fresh_folder(service: S3Service) -> Iterator[Folder]:
    """An empty one in a bucket of its own, with which it goes.

    A bucket that is deleted gives its room back at once; deleted objects alone do not, on a server
    that compacts later. A small server (SeaweedFS) has room for two or three buckets only.
    """
    bucket = f"bench-{secrets.token_hex(4)}"
    client = s3_client(service)
    client.create_bucket(Bucket=bucket)
    yield Folder(service, bucket)
    for page in client.get_paginator("list_objects_v2").paginate(Bucket=bucket):
        for found in page.get("Contents", []):
            client.delete_object(Bucket=bucket, Key=found["Key"])
    client.delete_bucket(Bucket=bucket)
    client.close()
