"""What iceberg-spark makes of values as partitions: asked, and frozen into a golden file.

    python -m tests.sinks.lake.partition_oracle

writes the golden file anew, from Spark's own tables. Values are texts in it, see ``shown``.
"""

from __future__ import annotations

import json
import string
import sys
import tempfile
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq

from tests.spark.lake_spark import ask_with_file

GOLDEN = Path(__file__).parents[2] / "golden" / "oracle" / "iceberg_partitions.json"
SCRIPT = "partition_values.py"

KINDS: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "decimal(9, 2)": pa.decimal128(9, 2),
    "decimal(18, 0)": pa.decimal128(18, 0),
    "decimal(38, 10)": pa.decimal128(38, 10),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us"),
    "timestamptz": pa.timestamp("us", "UTC"),
    "string": pa.string(),
    "uuid": pa.string(),
    "fixed[3]": pa.binary(),
    "binary": pa.binary(),
}
"""Types of Iceberg, each with the one that Spark has for it."""

NUMBERS = ("int", "long", "decimal")
TIMES = ("year", "month", "day", "hour")


def transforms(kind: str) -> list[str]:
    """Those that Iceberg has for a type."""
    made = ["identity", "void"]
    if kind not in ("boolean", "float", "double"):
        made += ["bucket[1]", "bucket[16]", "bucket[1000003]"]
    if kind.startswith(NUMBERS) or kind in ("string", "binary"):
        made += ["truncate[1]", "truncate[3]", "truncate[10]", "truncate[1000]"]
    if kind == "date":
        made += TIMES[:3]
    if kind.startswith("timestamp"):
        made += TIMES
    return made


FIRST_DAY, LAST_DAY = -719_162, 2_932_896
DAY = 86_400_000_000
TEXTS = [
    "",
    " ",
    "a",
    "null",
    "__HIVE_DEFAULT_PARTITION__",
    "é",
    "\U0001f600" * 4,
    "a\U0001f600\u0301b",
]
TEXTS += ["\ud7ff\ue000", "\uffff", "a/b=c%20#?", "x" * 60, "\U0010ffff\U0001f468\u200d\U0001f469"]


def values(kind: str, random: Random, size: int) -> list[Any]:
    """Random ones, the extremes first; for times and decimals in units of their last place."""
    if kind == "boolean":
        return [None, True, False]
    if kind in ("float", "double"):
        return [None, 0.0, -0.0, 1.5, float("nan"), float("inf"), float("-inf")]
    if kind == "string":
        signs = string.printable + "äß€\U0001f600\U0001f1e9\u0301"
        return [
            None,
            *TEXTS,
            *("".join(random.choices(signs, k=random.randint(1, 12))) for _ in range(size)),
        ]
    if kind == "uuid":
        return [
            None,
            *(
                str(UUID(int=n))
                for n in (0, 2**128 - 1, *(random.getrandbits(128) for _ in range(size)))
            ),
        ]
    if kind in ("fixed[3]", "binary"):
        bytes_ = [b"\0\0\0", b"\xff\xff\xff", *(random.randbytes(3) for _ in range(size))]
        return [None, *([b"", b"\xff", b"\x80" * 20] if kind == "binary" else []), *bytes_]
    if kind == "date":
        least, most, near = FIRST_DAY, LAST_DAY, [-1, 0, 1, -365, -366, 59, 60, -141_428, -141_427]
    elif kind.startswith("timestamp"):
        least, most = FIRST_DAY * DAY, (LAST_DAY + 1) * DAY - 1
        near = [
            -1,
            0,
            1,
            -3_600_000_000,
            -3_600_000_001,
            -DAY,
            -DAY - 1,
            DAY - 1,
            -2_208_988_800_000_001,
        ]
    elif kind in ("int", "long"):
        least, most = (-(2**31), 2**31 - 1) if kind == "int" else (-(2**63), 2**63 - 1)
        near = [-1001, -1000, -10, -9, -1, 0, 1, 9, 10, 34]
    else:
        most = 10 ** KINDS[kind].precision - 1
        least = -(most // 1000 * 1000)  # what is truncated to more digits stops Spark's commit
        near = [-1000, -129, -128, -127, -11, -10, -1, 0, 1, 127, 128, 129, 255, 256]
    some = [least, least + 1, least + 9_999, most - 1, most, *near]
    half = [random.randint(least, most) for _ in range(size // 2)]
    return [None, *some, *half, *(random.randint(-3000, 3000) for _ in range(size - size // 2))]


def array(kind: str, plain: Sequence[Any]) -> pa.Array:
    """``values`` in the type of the input."""
    arrow = KINDS[kind]
    if pa.types.is_decimal(arrow):
        digits = (None if n is None else f"{n}e-{arrow.scale}" for n in plain)
        return pa.array([None if text is None else Decimal(text) for text in digits], arrow)
    if pa.types.is_date(arrow):
        return pa.array(plain, pa.int32()).cast(arrow)
    if pa.types.is_timestamp(arrow):
        return pa.array(plain, pa.int64()).cast(arrow)
    return pa.array(plain, arrow)


def shown(value: Any) -> str | None:
    """As text, alike from Python's form of a value and from Spark's."""
    if isinstance(value, str):
        return value.encode().hex()
    if isinstance(value, bytes | bytearray | UUID):
        return (value.bytes if isinstance(value, UUID) else bytes(value)).hex()
    if isinstance(value, Decimal):
        return f"{value:f}"
    return None if value is None else str(value).lower()


Told = Mapping[str, Mapping[str, Sequence[str | None]]]
"""By type and transform: the partition value of each of ``values``."""


def ask_spark(rows: Mapping[str, Sequence[Any]], folder: Path) -> Told:
    """Partition values by iceberg-spark, of tables that it wrote."""
    asked = []
    for number, (kind, plain) in enumerate(rows.items()):
        path = folder / f"{number}.parquet"
        pq.write_table(pa.table({"id": range(len(plain)), "v": array(kind, plain)}), path)
        asked.append([kind, str(path), transforms(kind)])
    done = ask_with_file(SCRIPT, folder, {"asked": asked})
    return dict(zip(rows, done, strict=True))


def main(size: int = 24) -> None:
    random = Random(51)
    rows = {kind: values(kind, random, size) for kind in KINDS}
    with tempfile.TemporaryDirectory() as folder:
        told = ask_spark(rows, Path(folder))
    golden = {
        kind: {
            "values": [v.hex() if isinstance(v, bytes) else v for v in plain],
            "partitions": told[kind],
        }
        for kind, plain in rows.items()
    }
    lines = ",\n".join(f"{json.dumps(kind)}: {json.dumps(made)}" for kind, made in golden.items())
    GOLDEN.write_text(f"{{\n{lines}\n}}\n")


def frozen() -> dict[str, tuple[list[Any], Mapping[str, Sequence[str | None]]]]:
    """The golden file: values, and Spark's partition values."""

    def plain(kind: str, value: Any) -> Any:
        return bytes.fromhex(value) if value is not None and KINDS[kind] == pa.binary() else value

    return {
        kind: ([plain(kind, value) for value in made["values"]], made["partitions"])
        for kind, made in json.loads(GOLDEN.read_text()).items()
    }


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
