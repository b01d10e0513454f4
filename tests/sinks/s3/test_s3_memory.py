"""The memory of a task is bounded by a few parts and one row group, whatever it writes."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from abs_services import services
from tests.sinks.s3 import big_task

pytestmark = [pytest.mark.services, pytest.mark.campaign]

SMALL, LARGE = 256, 2048
"""MiB of Arrow data; the files are half of that."""

MORE = 100
"""MiB that the large task may take more than the small one."""


@pytest.mark.timeout(900)
@pytest.mark.parametrize("partitionby", ["", "k"])
def test_a_task_of_2_gib_takes_the_memory_of_a_small_one(partitionby: str) -> None:
    sizes = (SMALL, LARGE) if not partitionby else (SMALL // 2, SMALL * 2)
    peaks = [peak_of(size, partitionby) for size in sizes]
    print(f"{sizes} MiB: peaks of {peaks} MiB")
    assert peaks[1] < peaks[0] + MORE


def peak_of(mib: int, partitionby: str) -> int:
    """The peak memory of a process that writes so much, on a server of its own."""
    with services().s3() as server:
        options = {"path": f"s3://{server.bucket}/big", "endpoint": server.endpoint}
        options |= {"partitionby": partitionby} if partitionby else {}
        done = subprocess.run(
            [sys.executable, big_task.__file__, json.dumps(options), str(mib)],
            env={
                **os.environ,
                "AWS_ACCESS_KEY_ID": server.access_key,
                "AWS_SECRET_ACCESS_KEY": server.secret_key,
            },
            capture_output=True,
            text=True,
            check=True,
        )
        found = json.loads(done.stdout)
        print(mib, found)
        server.kill()
        return int(found["peak"])
