"""Run by a test: writes to local disk where there is no room, or no file can be opened; what it meets.

    python short_of_disk.py room|files FOLDER

For each place it says, as JSON, the error's kind, what it says and what its remedy is.
"""

from __future__ import annotations

import io
import json
import os
import resource
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from pathlib import Path

import pyarrow as pa
from botocore.awsrequest import AWSPreparedRequest, AWSResponse

from abs_clients.s3.client import client
from abs_core.errors import AbsError
from abs_core.model import HandleName, JobState
from abs_core.registers import FileRegister
from abs_core.wal import FolderSegments, SegmentWriter
from abs_embedded.state.local_store import LocalSnapshotStore
from abs_sinks.s3.options import S3Options
from abs_sinks.s3.segments import S3Segments
from abs_sinks.s3.taskfiles import Spill
from abs_sources.files.cells import WriteOnceFolder

ROOM = 1 << 16
"""Bytes that a file may have where there is no room."""

MUCH = pa.record_batch({"a": pa.array([os.urandom(1024) for _ in range(3 * ROOM // 1024)])})
LARGE = JobState("0123456789abcdef", "job", "t" * 3 * ROOM, "lineage", 1, "run")
HANDLE = HandleName("0123456789abcdef", "job", 1, 0, 0, "abc")


def segment(folder: Path) -> None:
    writer = SegmentWriter(FolderSegments(folder), HANDLE, MUCH.schema)
    writer.write(MUCH)
    writer.finish()


def register(folder: Path) -> None:
    FileRegister(folder).compare_and_set("job", None, LARGE)


def snapshot(folder: Path) -> None:
    LocalSnapshotStore(folder).put("1/part", bytes(3 * ROOM))


def spill(folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    tempfile.tempdir = str(folder)
    spilled = Spill(MUCH.schema, 0)
    try:
        spilled.add("a=1/", MUCH)
        for batches in spilled.buckets():
            list(batches)
    finally:
        spilled.close()


def segment_copy(folder: Path) -> None:
    """A segment that lies in S3, copied to local disk to be read."""
    folder.mkdir(exist_ok=True)
    tempfile.tempdir = str(folder)
    with ExitStack() as held:
        copied = S3Segments(_s3()).open(HANDLE)
        assert copied is not None
        held.enter_context(copied)


@cache
def _s3() -> S3Options:
    """Of a server that answers each request with a large object."""
    os.environ |= {"AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s"}
    given = {"path": "s3://bucket/x", "endpoint": "http://127.0.0.1:1", "region": "us-east-1"}
    options = S3Options.parse(given)

    def answer(request: AWSPreparedRequest, **_: object) -> AWSResponse:
        content = io.BytesIO(bytes(3 * ROOM))
        return AWSResponse(request.url, 200, {"content-length": str(3 * ROOM)}, content)

    client(options.server).meta.events.register("before-send.s3", answer)
    return options


def files_log(folder: Path) -> None:
    WriteOnceFolder(folder).put_new("1", bytes(3 * ROOM))


PLACES: dict[str, Callable[[Path], None]] = {
    "segment": segment,
    "register": register,
    "snapshot": snapshot,
    "spill": spill,
    "segment copy": segment_copy,
    "files log": files_log,
}


def main(short_of: str, folder: Path) -> None:
    for name, write in PLACES.items():
        write(folder / f"{name}-before")  # all that it needs is loaded, and the folder is there
    said = {}
    for name, write in PLACES.items():
        place = folder / name
        place.mkdir()
        met = ["nothing", "", ""]
        with no_room() if short_of == "room" else no_file():
            try:
                write(place)
            except (AbsError, OSError) as error:
                named = (
                    (error.what, error.remedy) if isinstance(error, AbsError) else (str(error), "")
                )
                met = [type(error).__name__, *named]
        said[name] = met
    print(json.dumps(said))


@contextmanager
def no_room() -> Iterator[None]:
    """No file may be larger."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (ROOM, hard))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@contextmanager
def no_file() -> Iterator[None]:
    """Every file that this process may open is open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (128, hard))
    taken: list[int] = []
    with suppress(OSError):
        while True:
            taken.append(os.open(os.devnull, os.O_RDONLY))
    yield
    for each in taken:
        os.close(each)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


main(sys.argv[1], Path(sys.argv[2]))
