"""Arrow batches as a duckdb relation that keeps the exceptions of the batches' producer."""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterable, Iterator

import pyarrow as pa
from duckdb import DuckDBPyConnection, DuckDBPyRelation

from abs_audit.progress import meter_here


@contextlib.contextmanager
def streamed(
    connection: DuckDBPyConnection, schema: pa.Schema, batches: Iterable[pa.RecordBatch]
) -> Iterator[DuckDBPyRelation]:
    """A relation that can be scanned once and consumes the batches during the scan.

    An exception of ``batches`` crosses Arrow's C interface as text only, and duckdb raises another
    one inside the context; this raises the original.
    """
    failures: list[Exception] = []
    meter = meter_here()  # duckdb's threads, which call ``watched``, do not have this context

    def watched() -> Generator[pa.RecordBatch, None, None]:
        try:
            for batch in batches:
                yield batch
                meter.count(batch.num_rows)
        except Exception as error:
            failures.append(error)
            raise

    source = watched()
    try:
        yield connection.from_arrow(pa.RecordBatchReader.from_batches(schema, source))
    except Exception:
        if failures:
            raise failures[0] from None
        raise
    finally:
        source.close()  # a scan that broke off leaves it in the middle
