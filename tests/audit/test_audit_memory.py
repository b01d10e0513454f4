"""A million records are audited in a small, bounded memory: the rest is spilled."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from abs_audit import AuditSettings, Files, audit
from abs_core.errors import ConfigError

RECORDS = 1_000_000
BATCH = 200_000
MEMORY_MIB = 128
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


def write(path: Path, tables: list[pa.Table]) -> int:
    """Returns how many bytes the records take in memory."""
    with pq.ParquetWriter(path, tables[0].schema) as writer:
        for table in tables:
            writer.write_table(table)
    return sum(table.nbytes for table in tables)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_million_records_are_audited_in_bounded_memory(tmp_path: Path) -> None:
    batches = [batch(first) for first in range(0, RECORDS, BATCH)]
    size = write(tmp_path / "expected.parquet", batches)
    batches[3] = pa.concat_tables([batches[3].slice(1), batches[3].slice(7, 1)])
    write(tmp_path / "actual.parquet", batches[::-1])
    del batches
    # Expected and two reads of the target, with a digest of 16 bytes each: more than may be held.
    held = 3 * (size + 16 * RECORDS) >> 20
    assert held > 2 * MEMORY_MIB

    paths = [str(tmp_path / name) for name in ("expected.parquet", "actual.parquet")]
    done = subprocess.run(
        [sys.executable, "-c", AUDIT, *paths, str(MEMORY_MIB)],
        capture_output=True,
        text=True,
        check=True,
        timeout=500,
    )
    found = json.loads(done.stdout)
    assert (found["missing"], found["duplicate"], found["corrupted"]) == (1, 1, 0)
    assert found["actual"] == RECORDS
    assert found["peak_mib"] < MEMORY_MIB + BESIDES_MIB


def test_a_temporary_folder_that_is_not_there_is_a_clear_error(tmp_path: Path) -> None:
    write(tmp_path / "e.parquet", [batch(0)])
    sides = Files((str(tmp_path / "e.parquet"),))
    with pytest.raises(ConfigError, match="temporary"):
        audit(sides, sides, AuditSettings(temp_directory=tmp_path / "absent"))
