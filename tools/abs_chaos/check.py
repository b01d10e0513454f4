"""The audit as an assertion."""

from __future__ import annotations

import io
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from abs_core.errors import OptionError

if TYPE_CHECKING:
    from abs_audit import Relation, Report

SETTLE_S = 10.0


def assert_exactly_once(
    expected: str | Path | Sequence[Mapping[str, Any]],
    actual: str | Path,
    *,
    key: Sequence[str] = (),
    table: str | None = None,
    columns: Sequence[str] | None = None,
    schema: str | None = None,
    settle: float = SETTLE_S,
) -> Report:
    """Assert that a target holds exactly the expected rows; ``abs_audit.audit`` says what is proven.

    Args:
        expected: rows as dicts, or what ``abs_audit.relation`` reads: files, folders, a URL.
        actual: the target: files or a URL; its password is in the URL or the environment.
        key: columns that identify a row; without it a changed row is missing and unexpected.
        table: of the target, if it is a database.
        columns: what to compare besides the key; None: all.
        schema: types of columns that have a type on neither side, as DDL for Spark.
        settle: seconds to wait until the target stops changing.

    Raises:
        AssertionError: with figures and samples of each kind of difference.
        ConfigError, DataError, TargetError: as the audit.
    """
    from rich.console import Console

    from abs_audit import AuditSettings, audit, relation
    from abs_audit.ddl import schema_of
    from abs_audit.render import show

    types = None if schema is None else schema_of(schema)
    settings = AuditSettings(key=key, columns=columns, schema=types, settle=settle)
    with tempfile.TemporaryDirectory(prefix="abs-expected-") as folder:
        source = _expected(expected, Path(folder))
        report = audit(source, relation([str(actual)], table=table), settings)
    if not report.clean:
        text = io.StringIO()
        show(report, Console(file=text, width=200))
        raise AssertionError(f"not exactly once: {'; '.join(report.reasons)}\n{text.getvalue()}")
    return report


def _expected(rows: str | Path | Sequence[Mapping[str, Any]], folder: Path) -> Relation:
    """The side of the truth; rows are written to a file first."""
    import pyarrow as pa
    from pyarrow import parquet

    from abs_audit import relation

    if isinstance(rows, str | Path):
        return relation([str(rows)])
    if not rows:
        raise OptionError(
            "No expected row is given, so no column is known.",
            remedy="give rows, or a file whose schema names the columns.",
        )
    file = folder / "expected.parquet"
    parquet.write_table(pa.Table.from_pylist([dict(row) for row in rows]), file)
    return relation([str(file)])
