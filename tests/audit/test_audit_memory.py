"""Millions of records are audited in a small, bounded memory: the rest is spilled."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from abs_audit import AuditSettings, Files, audit
from abs_core.errors import ConfigError

MILLION = 1_000_000
BATCH = 200_000
BESIDES_MIB = 260
"""The interpreter, pyarrow and duckdb themselves (100), and what is in flight between them."""

AUDIT = """
import json, sys
from pathlib import Path
from abs_audit import AuditSettings, Files, audit
expected, actual, memory = sys.argv[1:]
report = audit(Files((expected,)), Files((actual,)), AuditSettings(key=["id"], memory_mib=int(memory)))
peak = next(l for l in Path("/proc/self/status").read_text().splitlines() if l.startswith("VmHWM"))
print(json.dumps({**report.differences.figures(), "peak_mib": int(peak.split()[1]) // 1024}))
"""


def batch(first: int) -> pa.Table:
    ids = pa.array(range(first, first + BATCH), pa.int64())
    digits = ids.cast(pa.string())
    text = pc.binary_join_element_wise("record ", digits, pc.utf8_lpad(digits, 40, "0"), " ")
    return pa.table({"id": ids, "text": text, "at": ids.cast(pa.timestamp("us", "UTC"))})


def write(path: Path, tables: Iterable[pa.Table]) -> int:
    """Returns how many bytes the records take in memory."""
    size = 0
    with pq.ParquetWriter(path, batch(0).schema) as writer:
        for table in tables:
            writer.write_table(table)
            size += table.nbytes
    return size


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("records", "memory_mib"),
    [(MILLION, 128), pytest.param(10 * MILLION, 512, marks=pytest.mark.campaign)],
)
def test_millions_of_records_are_audited_in_bounded_memory(
    tmp_path: Path, records: int, memory_mib: int
) -> None:
    firsts = range(0, records, BATCH)
    size = write(tmp_path / "expected.parquet", map(batch, firsts))
    wrong = batch(firsts[3])
    wrong = pa.concat_tables([wrong.slice(1), wrong.slice(7, 1)])
    write(
        tmp_path / "actual.parquet",
        (wrong if first == firsts[3] else batch(first) for first in reversed(firsts)),
    )
    # Expected and two reads of the target, with a digest of 16 bytes each: more than may be held.
    held = 3 * (size + 16 * records) >> 20
    assert held > 2 * memory_mib

    paths = [str(tmp_path / name) for name in ("expected.parquet", "actual.parquet")]
    done = subprocess.run(
        [sys.executable, "-c", AUDIT, *paths, str(memory_mib)],
        capture_output=True,
        text=True,
        check=True,
        timeout=500,
    )
    found = json.loads(done.stdout)
    assert (found["missing"], found["duplicate"], found["corrupted"]) == (1, 1, 0)
    assert found["actual"] == records
    assert found["peak_mib"] < memory_mib + BESIDES_MIB


def test_a_temporary_folder_that_is_not_there_is_a_clear_error(tmp_path: Path) -> None:
    write(tmp_path / "e.parquet", [batch(0)])
    sides = Files((str(tmp_path / "e.parquet"),))
    with pytest.raises(ConfigError, match="temporary"):
        audit(sides, sides, AuditSettings(temp_directory=tmp_path / "absent"))
