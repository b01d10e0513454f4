"""Uploads of 512 MiB in parts, by the sink and by clients alone.

Every run has a server of its own (its disk is small), started and warmed up outside of the time. CPU
seconds are this process's alone: the server shares the machine.
"""

from __future__ import annotations

import base64
import os
import resource
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from statistics import median

import boto3
from awscrt.auth import AwsCredentialsProvider
from awscrt.checksums import crc64nvme
from awscrt.http import HttpHeaders, HttpRequest
from awscrt.s3 import (
    S3Client,
    S3RequestTlsMode,
    S3RequestType,
    create_default_s3_signing_config,
)
from botocore.config import Config

from abs_clients.s3.client import client
from abs_services import S3Service
from abs_services.buckets import s3_client
from abs_sinks.s3 import S3Options
from abs_sinks.s3.partfile import PartFile, UploadPool
from benchmarks.pairs import Side, Tell, interleave
from benchmarks.ratios import NO_BAR, Bar, Sample
from benchmarks.report import Comparison, Result
from benchmarks.s3_folder import s3_server

PART, PARTS, THREADS = 8 << 20, 64, 4
DATA = os.urandom(PART)
SINK = "the sink"
BAR = Bar(low=0.9)
"""Over the fastest client alone that can split an upload."""

PutPart = Callable[[str, str, int], object]
Ready = Callable[[S3Service, int], Callable[[], None]]
"""Sets a client up for so many parts; what it gives is timed."""


def sink(service: S3Service, parts: int) -> Callable[[], None]:
    """The sink's own way: a file object that is written to in pieces of 1 MiB."""
    given = {"path": f"s3://{service.bucket}/sink", "endpoint": service.endpoint}
    options = S3Options.parse({**given, "region": service.region, "uploadthreads": str(THREADS)})
    client(options.server)

    def run() -> None:
        pool = UploadPool(THREADS, PART)
        file = PartFile(options, pool, "sink/x", {}, patience=None)
        for _ in range(parts):
            for at in range(0, PART, 1 << 20):
                file.write(memoryview(DATA)[at : at + (1 << 20)])
        file.finish()
        pool.close()

    return run


def boto3_client(service: S3Service, *, signed: bool, crc: bool) -> PutPart:
    """boto3 with threads: the payload hashed for the signature or not, a CRC-64 sent or not."""
    made = boto3.client(
        "s3",
        endpoint_url=service.endpoint,
        region_name=service.region,
        aws_access_key_id=service.access_key,
        aws_secret_access_key=service.secret_key,
        config=Config(
            s3={"addressing_style": "path", "payload_signing_enabled": signed},
            max_pool_connections=8,
            request_checksum_calculation="when_required",
        ),
    )

    def put(key: str, upload: str, number: int) -> object:
        more = {"ChecksumCRC64NVME": _crc()} if crc else {}
        return made.upload_part(
            Bucket=service.bucket,
            Key=key,
            UploadId=upload,
            PartNumber=number,
            Body=DATA,
            **more,
        )

    return put


def awscrt_client(service: S3Service) -> PutPart:
    """UploadPart by awscrt, with a CRC-64."""
    credentials = AwsCredentialsProvider.new_static(service.access_key, service.secret_key)
    made = S3Client(
        region=service.region,
        signing_config=create_default_s3_signing_config(
            region=service.region, credential_provider=credentials
        ),
        tls_mode=S3RequestTlsMode.DISABLED,
        part_size=PART,
    )
    host = service.endpoint.removeprefix("http://")

    def put(key: str, upload: str, number: int) -> object:
        headers = HttpHeaders(
            [
                ("Host", host),
                ("Content-Length", str(PART)),
                ("x-amz-checksum-crc64nvme", _crc()),
            ]
        )
        path = f"/{service.bucket}/{key}?partNumber={number}&uploadId={upload}"
        request = made.make_request(
            type=S3RequestType.DEFAULT,
            operation_name="UploadPart",
            request=HttpRequest("PUT", path, headers, BytesIO(DATA)),
        )
        return request.finished_future.result(60)

    return put


def alone(make: Callable[[S3Service], PutPart]) -> Ready:
    """An upload by a client, with nothing around it."""

    def ready(service: S3Service, parts: int) -> Callable[[], None]:
        put, control, key = make(service), s3_client(service), "alone/x"

        def run() -> None:
            upload = control.create_multipart_upload(Bucket=service.bucket, Key=key)["UploadId"]
            with ThreadPoolExecutor(THREADS) as pool:
                list(pool.map(lambda number: put(key, upload, number), range(1, parts + 1)))

        return run

    return ready


LANES: dict[str, Ready] = {
    SINK: sink,
    "boto3 signed": alone(lambda s: boto3_client(s, signed=True, crc=False)),
    "boto3 unsigned": alone(lambda s: boto3_client(s, signed=False, crc=False)),
    "boto3 unsigned, CRC": alone(lambda s: boto3_client(s, signed=False, crc=True)),
    "awscrt, CRC": alone(awscrt_client),
}


def lane(name: str, parts: int) -> Side:
    """One upload on a new server."""

    def run() -> Sample:
        with s3_server() as service:
            s3_client(service).put_object(Bucket=service.bucket, Key="first", Body=DATA)
            upload = LANES[name](service, parts)
            cpu, began = _cpu(), time.perf_counter()
            upload()
            wall = time.perf_counter() - began
            return Sample(wall, _cpu() - cpu, round(PART * parts / 1e6))

    return Side(name, run)


def run(*, pairs: int, tell: Tell, parts: int = PARTS) -> Result:
    """Ratios in interleaved rounds; the bar is for the client that was the fastest."""
    samples = interleave([lane(name, parts) for name in LANES], pairs=pairs, tell=tell)
    clients = [name for name in LANES if name != SINK]
    fastest = max(clients, key=lambda name: median(s.speed for s in samples[name]))
    return Result(
        name="s3_upload",
        unit="megabytes",
        samples=samples,
        comparisons=[
            Comparison(SINK, name, BAR if name == fastest else NO_BAR) for name in clients
        ],
        facts={"parts": parts, "bytes of a part": PART, "threads": THREADS},
        notes=(
            f"the fastest client alone: {fastest}",
            "the sink copies what it is given into parts, and checksums it; clients send one buffer",
            "CPU is of the client's process alone; the server shares the machine's cores",
        ),
    )


def _crc() -> str:
    return base64.b64encode(crc64nvme(DATA).to_bytes(8, "big")).decode()


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
