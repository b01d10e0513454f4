"""``python -m benchmarks.s3_upload``: uploads of 512 MiB in parts, by the sink and by clients alone.

Every run has a server of its own (its disk is small), and a lane's place in a round moves by one from
round to round. CPU seconds are this process's alone: the server shares the machine.
"""

from __future__ import annotations

import base64
import json
import os
import resource
import statistics
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path
from typing import Annotated, Any

import boto3
import typer
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
from rich.console import Console

from abs_services import S3Service, services
from abs_services.buckets import s3_client
from abs_sinks.s3 import S3Options
from abs_sinks.s3.client import client, close_idle
from abs_sinks.s3.partfile import Lanes, PartFile

PART, PARTS, THREADS = 8 << 20, 64, 4
RESULT = Path(__file__).parent / "results" / "s3_upload.json"
DATA = os.urandom(PART)

PutPart = Callable[[str, str, int], object]
console = Console()


def sink(service: S3Service) -> Callable[[], None]:
    """The sink's own way: a file object that is written to in pieces of 1 MiB."""
    given = {"path": f"s3://{service.bucket}/sink", "endpoint": service.endpoint}
    options = S3Options.parse({**given, "region": service.region, "uploadthreads": str(THREADS)})
    client(options)

    def run() -> None:
        lanes = Lanes(THREADS, PART)
        file = PartFile(options, lanes, "sink/x", {})
        for _ in range(PARTS):
            for at in range(0, PART, 1 << 20):
                file.write(memoryview(DATA)[at : at + (1 << 20)])
        file.finish()
        lanes.close()

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


def alone(make: Callable[[S3Service], PutPart]) -> Callable[[S3Service], Callable[[], None]]:
    """An upload by a client, with nothing around it."""

    def ready(service: S3Service) -> Callable[[], None]:
        put, control, key = make(service), s3_client(service), "alone/x"

        def run() -> None:
            upload = control.create_multipart_upload(Bucket=service.bucket, Key=key)["UploadId"]
            with ThreadPoolExecutor(THREADS) as pool:
                list(pool.map(lambda number: put(key, upload, number), range(1, PARTS + 1)))

        return run

    return ready


LANES: dict[str, Callable[[S3Service], Callable[[], None]]] = {
    "the sink": sink,
    "boto3 signed": alone(lambda s: boto3_client(s, signed=True, crc=False)),
    "boto3 signed, CRC": alone(lambda s: boto3_client(s, signed=True, crc=True)),
    "boto3 unsigned": alone(lambda s: boto3_client(s, signed=False, crc=False)),
    "boto3 unsigned, CRC": alone(lambda s: boto3_client(s, signed=False, crc=True)),
    "awscrt, CRC": alone(awscrt_client),
}


@contextmanager
def server() -> Iterator[S3Service]:
    """A server of its own, which has taken one object already."""
    with services().s3() as service:
        os.environ["AWS_ACCESS_KEY_ID"] = service.access_key
        os.environ["AWS_SECRET_ACCESS_KEY"] = service.secret_key
        close_idle()
        yield service
        close_idle()
        service.kill()


def main(
    rounds: Annotated[int, typer.Option(min=1, help="Runs of each lane.")] = 3,
) -> None:
    """Medians of MB/s and CPU seconds for each lane; raw samples as JSON."""
    samples: dict[str, list[dict[str, float]]] = {name: [] for name in LANES}
    for number in range(rounds):
        names = list(LANES)
        for name in names[number % len(names) :] + names[: number % len(names)]:
            with server() as service:
                s3_client(service).put_object(Bucket=service.bucket, Key="first", Body=DATA)
                run = LANES[name](service)
                cpu, began = _cpu(), time.perf_counter()
                run()
                wall = time.perf_counter() - began
            sample = {"wall_s": wall, "cpu_s": _cpu() - cpu}
            samples[name].append(sample)
            console.print(
                f"{name:>20}  {PARTS * PART / wall / 1e6:4.0f} MB/s  {sample['cpu_s']:.2f} s CPU"
            )
    found = {name: _summary(runs) for name, runs in samples.items()}
    best = max(value["MB/s"] for name, value in found.items() if name != "the sink")
    document: dict[str, Any] = {
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "bytes": PARTS * PART,
        "rounds": rounds,
        "the sink / the fastest": round(found["the sink"]["MB/s"] / best, 3),
        "medians": found,
        "samples": samples,
    }
    RESULT.write_text(json.dumps(document, indent=1) + "\n")
    console.print_json(json.dumps({k: v for k, v in document.items() if k != "samples"}))


def _summary(runs: list[dict[str, float]]) -> dict[str, float]:
    return {
        "MB/s": round(PARTS * PART / statistics.median(run["wall_s"] for run in runs) / 1e6, 1),
        "CPU s": round(statistics.median(run["cpu_s"] for run in runs), 2),
    }


def _crc() -> str:
    return base64.b64encode(crc64nvme(DATA).to_bytes(8, "big")).decode()


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    typer.run(main)
