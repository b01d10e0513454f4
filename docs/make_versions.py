"""Writes ``docs/reference/versions.md``: what the tests run.

    python -m docs.make_versions

Spark's releases are those of ``tests/spark/other_sparks.py``, the servers those that ``abs_services``
starts, the clients those of ``requirements.lock``.
"""

from __future__ import annotations

import re
from pathlib import Path

from abs_services.containers.engine import IMAGES
from abs_services.native.kafka_jars import KAFKA
from abs_services.native.postgres import RELEASES
from tests.spark.other_sparks import RUNTIMES

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "reference" / "versions.md"
CLIENTS = (
    ("PostgreSQL", ("psycopg", "pgpq")),
    ("Kafka", ("confluent-kafka", "kafka-python")),
    ("S3", ("boto3", "awscrt")),
    ("Delta", ("deltalake",)),
    ("Iceberg", ("pyiceberg",)),
    ("audit", ("duckdb",)),
    ("all", ("pyarrow", "numpy")),
)
HEAD = """# Versions

`python -m docs.make_versions` writes this page: what the tests run, not what might work, too.

## Spark and Python

`make matrix` runs the same killed and audited job on each row, in an environment of its own with
these libraries; where such a Python is not installed, the one that runs the tests stands in.
`make test` runs on the newest Spark.

| Spark | Python | libraries | `format("abs-...")` | `abs_spark.epoch` |
| --- | --- | --- | --- | --- |
"""


def locked() -> dict[str, str]:
    """Package and version of each line of the lock."""
    text = (ROOT / "requirements.lock").read_text()
    return dict(re.findall(r"^([a-z0-9-]+)(?:\[[^]]*\])?==([^ ;\\]+)", text, re.MULTILINE))


def servers() -> list[tuple[str, str]]:
    """System, and the versions of it that the tests start."""
    postgres = ", ".join(str(major) for major in sorted(RELEASES))
    s3 = IMAGES["s3"].public.rpartition("/")[2].replace(":", " ").replace("seaweedfs", "SeaweedFS")
    return [("PostgreSQL", postgres), ("Kafka", KAFKA), ("S3", s3)]


def page() -> str:
    rows = [
        f"| {one.spark} | {one.python} | {', '.join(one.libraries)} "
        f"| {'yes' if one.spark >= '4.1' else '-'} | yes |"
        for one in RUNTIMES
    ]
    clients = locked()
    return "\n".join(
        [
            HEAD + "\n".join(rows),
            "\n## Servers\n",
            "| system | version |\n| --- | --- |",
            *(f"| {system} | {version} |" for system, version in servers()),
            "\nS3 is SeaweedFS here. No test of ours runs against Amazon's own service, MinIO or Ceph.",
            "\n## Clients\n",
            "What `requirements.lock` has; `pyproject.toml` has the bounds.\n",
            "| for | packages |\n| --- | --- |",
            *(
                f"| {system} | {', '.join(f'{name} {clients[name]}' for name in names)} |"
                for system, names in CLIENTS
            ),
            "",
        ]
    )


def main() -> None:
    PAGE.write_text(page())


if __name__ == "__main__":
    main()
