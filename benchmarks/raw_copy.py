"""The limit: COPY ... (FORMAT BINARY) of bytes, with nothing around it. No register, no marker."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import psycopg
import pyarrow as pa
from pgpq import ArrowToPostgresBinaryEncoder
from psycopg import sql

from benchmarks.target import TABLE

# 64 KiB to 1 MiB were alike here, one buffer of all bytes was slower.
_CHUNK_BYTES = 256 * 1024


def encoded(batches: Sequence[pa.RecordBatch]) -> list[bytes]:
    """The bytes of one whole COPY, encoded beforehand, in chunks of 256 KiB."""
    whole = b"".join(encoding(batches))
    return [whole[at : at + _CHUNK_BYTES] for at in range(0, len(whole), _CHUNK_BYTES)]


def encoding(batches: Sequence[pa.RecordBatch]) -> Iterator[bytes]:
    """The same bytes, encoded batch by batch as they are asked for; values are not checked."""
    encoder = ArrowToPostgresBinaryEncoder(batches[0].schema)
    yield encoder.write_header()
    for batch in batches:
        yield encoder.write_batch(batch)
    yield encoder.finish()


def copy(connection: psycopg.Connection, pieces: Iterable[bytes]) -> None:
    """COPY into the table, in the connection's transaction, which is left open."""
    statement = f"COPY {TABLE} FROM STDIN (FORMAT BINARY)"
    with connection.cursor() as cursor, cursor.copy(statement.encode()) as sent:
        for piece in pieces:
            sent.write(piece)


def prepare(connection: psycopg.Connection, gid: str) -> None:
    """PREPARE TRANSACTION; the connection is free for another one then."""
    connection.execute(sql.SQL("PREPARE TRANSACTION {}").format(sql.Literal(gid)))


def commit_prepared(connection: psycopg.Connection, gid: str) -> None:
    """COMMIT PREPARED, outside of any transaction."""
    connection.rollback()  # ends libpq's transaction block, which PREPARE left behind
    connection.autocommit = True
    connection.execute(sql.SQL("COMMIT PREPARED {}").format(sql.Literal(gid)))
    connection.autocommit = False
