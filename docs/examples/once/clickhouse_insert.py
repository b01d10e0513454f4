"""Adds each batch to balances in ClickHouse, here chDB's: rows and version are one insert."""

from contextlib import closing

import pyarrow as pa
from chdb.session import Session

# A batch is a row of its version, and one for each account. What is inserted a second time under the
# same version takes the place of the first: in the reader's eyes at once (FINAL), on disk later.
TABLES = [
    """
    CREATE TABLE IF NOT EXISTS ledger (
        application String, version UInt64, is_version Bool, account Int64, amount Int64
    ) ENGINE = ReplacingMergeTree ORDER BY (application, version, is_version, account)
    SETTINGS fsync_after_insert = 1
    """,
    """
    CREATE VIEW IF NOT EXISTS balances AS
    SELECT account, sum(amount) AS amount FROM ledger FINAL WHERE NOT is_version GROUP BY account
    """,
]
MOST = 1_000_000  # rows of one block: more would become visible one block after the other


def guarded(path):
    """``write`` and ``applied`` for the database in a folder, which one process at a time has."""

    def connect():
        return closing(Session(path))

    with connect() as db:
        for statement in TABLES:
            db.query(statement)

    def write(df, token):
        batch = df.groupBy("account").agg({"amount": "sum"}).toDF("account", "amount").toArrow()
        if batch.num_rows >= MOST:
            raise ValueError(f"a batch of {batch.num_rows} accounts is not one insert of one block")
        mark = pa.table({"account": [0], "amount": [0]}, schema=batch.schema)
        rows = pa.concat_tables([mark, batch]).combine_chunks()
        rows = rows.append_column("is_version", pa.array([n == 0 for n in range(rows.num_rows)]))
        with connect() as db:
            if version_of(db, token.application) >= token.version:
                return
            db.query(
                "INSERT INTO ledger SELECT {application:String}, {version:UInt64}, is_version, "
                "account, amount FROM Python(rows)",
                params=token._asdict(),
            )

    def version_of(db, application):
        query = "SELECT max(version) FROM ledger WHERE application = {application:String}"
        return int(str(db.query(query, params={"application": application})))

    def applied(application):
        with connect() as db:
            return version_of(db, application) or None

    return write, applied
