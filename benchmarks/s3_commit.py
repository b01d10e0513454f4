"""The commit of an epoch of many S3 handles, against bare Complete calls of boto3 in as many threads.

Each run prepares an epoch outside of the time: one file of a few hundred bytes for each handle. The
sink's side is what a coordinator asks of its committer: to inspect every handle before the decision,
and to commit every handle after it. boto3's side completes uploads that nobody has looked at, and
proves nothing.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from statistics import median
from typing import Any
from unittest.mock import patch

from abs_clients.s3.client import client
from abs_core.contracts import Task
from abs_core.model import Committable, Outcome
from abs_services import S3Service
from abs_sinks.s3 import S3Options, S3Sink
from abs_sinks.s3.twophase import THREADS, TwoPhaseCommitter
from abs_sinks.s3.uploads import Upload, part_names, uploads_of
from benchmarks import rows
from benchmarks.meter import metered
from benchmarks.pairs import Side, Tell, interleave
from benchmarks.ratios import Bar, Sample
from benchmarks.report import Comparison, Result
from benchmarks.s3_folder import Folder, fresh_folder

HANDLES = 1_000
PREPARING = 8
OURS, BARE = "inspect and commit", "boto3: bare Complete"
BY_BOTO3 = "inspect and commit by boto3"
COMMIT = "commit"
INSPECT, BARE_LIST = "inspect", "boto3: bare ListParts"
_CLIENT = "client CPU"
BAR = Bar(low=0.9)

Act = Callable[[S3Options, Sequence[Committable]], None]


def run(service: S3Service, *, pairs: int, tell: Tell, handles: int = HANDLES) -> Result:
    """Ratios in interleaved rounds, and the seconds of an epoch."""
    acts: dict[str, Act] = {
        OURS: _ours,
        COMMIT: _commit,
        BARE: partial(_by_boto3, _complete),
        INSPECT: _inspect,
        BY_BOTO3: _without_the_fast_path,
        BARE_LIST: partial(_by_boto3, _list_parts),
    }
    sides = [Side(name, partial(_timed, service, act, handles)) for name, act in acts.items()]
    samples = interleave(sides, pairs=pairs, tell=tell)
    return Result(
        name="s3_commit",
        unit="handles",
        samples=samples,
        comparisons=[
            Comparison(OURS, BARE, BAR),
            Comparison(OURS, BY_BOTO3),
            Comparison(COMMIT, BARE),
            Comparison(INSPECT, BARE_LIST),
        ],
        facts={
            "handles": handles,
            "threads": THREADS,
            **{
                f"seconds of {name} (fastest, median)": [
                    round(sorted(s.wall_s for s in found)[at], 3) for at in (0, len(found) // 2)
                ]
                for name, found in samples.items()
            },
            **{
                f"seconds of {_CLIENT}, {name} (median)": round(
                    median(dict(s.parts)[_CLIENT] for s in found), 3
                )
                for name, found in samples.items()
            },
        },
        notes=("CPU is of the client and of the server, which share the machine's cores",),
    )


def _timed(service: S3Service, act: Act, handles: int) -> Sample:
    with fresh_folder(service) as folder:
        options = S3Options.parse(folder.options)
        prepared = _prepared(folder, options, handles)
        with metered() as taken:
            began, busy = time.perf_counter(), time.process_time()
            act(options, prepared)
            wall, client_s = time.perf_counter() - began, time.process_time() - busy
        return Sample(wall, taken.cpu_s, handles, ((_CLIENT, client_s),))


def _prepared(folder: Folder, options: S3Options, handles: int) -> list[Committable]:
    batch = rows.table(1).to_batches()[0]
    sink = S3Sink(options, batch.schema)

    def one(number: int) -> Committable:
        writer = sink.writer(Task("0" * 16, "job", 1, 0, number, secrets.token_hex(8)))
        writer.write(batch)
        committable = writer.pre_commit()
        assert committable is not None
        return committable

    with ThreadPoolExecutor(PREPARING) as pool:
        return list(pool.map(one, range(handles)))


def _inspect(options: S3Options, prepared: Sequence[Committable]) -> None:
    found = TwoPhaseCommitter(options).inspect(prepared)
    assert {seen.outcome for seen in found.values()} == {Outcome.PREPARED}


def _ours(options: S3Options, prepared: Sequence[Committable]) -> None:
    _inspect(options, prepared)
    _commit(options, prepared)


def _without_the_fast_path(options: S3Options, prepared: Sequence[Committable]) -> None:
    no_answer: Any = {"direct_parts": lambda *_: None, "direct_complete": lambda *_: None}
    with patch.multiple("abs_sinks.s3.uploads", **no_answer):
        _ours(options, prepared)


def _commit(options: S3Options, prepared: Sequence[Committable]) -> None:
    assert set(TwoPhaseCommitter(options).commit(prepared).values()) == {Outcome.COMMITTED}


def _by_boto3(
    call: Callable[[Any, str, Upload], object],
    options: S3Options,
    prepared: Sequence[Committable],
) -> None:
    api = client(options.server)
    uploads = [upload for committable in prepared for upload in uploads_of(committable)]
    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(partial(call, api, options.path.bucket), uploads))


def _complete(api: Any, bucket: str, upload: Upload) -> object:
    parts = {"Parts": part_names(upload)}
    return api.complete_multipart_upload(
        Bucket=bucket, Key=upload.key, UploadId=upload.upload_id, MultipartUpload=parts
    )


def _list_parts(api: Any, bucket: str, upload: Upload) -> object:
    return api.list_parts(Bucket=bucket, Key=upload.key, UploadId=upload.upload_id)
