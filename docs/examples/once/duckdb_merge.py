"""Adds each batch to balances in DuckDB. One process at a time has its file: others fail, and retry."""

import duckdb

TABLES = """
    CREATE TABLE IF NOT EXISTS balances (account BIGINT PRIMARY KEY, amount BIGINT);
    CREATE TABLE IF NOT EXISTS versions (application TEXT PRIMARY KEY, version BIGINT);
"""
NEWER = """
    INSERT INTO versions VALUES (?, ?) ON CONFLICT (application)
    DO UPDATE SET version = excluded.version WHERE versions.version < excluded.version
"""
MERGE = """
    MERGE INTO balances USING
        (SELECT account, sum(amount) AS amount FROM batch GROUP BY account) AS batch
    ON balances.account = batch.account
    WHEN MATCHED THEN UPDATE SET amount = balances.amount + batch.amount
    WHEN NOT MATCHED THEN INSERT VALUES (batch.account, batch.amount)
"""


def guarded(path):
    """``write`` and ``applied`` for the database at a path."""

    def connect():
        db = duckdb.connect(path)
        db.execute(TABLES)
        return db

    def write(df, token):
        batch = df.select("account", "amount").toArrow()
        with connect() as db:
            db.begin()
            [changed] = db.execute(NEWER, list(token)).fetchone()
            if changed:
                db.register("batch", batch)
                db.execute(MERGE)
            db.commit()

    def applied(application):
        with connect() as db:
            query = "SELECT max(version) FROM versions WHERE application = ?"
            return db.execute(query, [application]).fetchone()[0]

    return write, applied
