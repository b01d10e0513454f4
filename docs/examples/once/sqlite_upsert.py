"""Adds each batch to balances in SQLite; balances and version change in one transaction."""

import sqlite3
from contextlib import closing


def guarded(path):
    """``write`` and ``applied`` for the database at a path."""

    def connect():
        db = sqlite3.connect(path, timeout=60, isolation_level=None)
        db.execute("CREATE TABLE IF NOT EXISTS balances (account INT PRIMARY KEY, amount INT)")
        db.execute(
            "CREATE TABLE IF NOT EXISTS versions (application TEXT PRIMARY KEY, version INT)"
        )
        return closing(db)

    def write(df, token):
        rows = [tuple(row) for row in df.select("account", "amount").collect()]
        with connect() as db:
            db.execute("BEGIN IMMEDIATE")
            newer = db.execute(
                "INSERT INTO versions VALUES (?, ?) ON CONFLICT (application)"
                " DO UPDATE SET version = excluded.version WHERE version < excluded.version",
                token,
            )
            if newer.rowcount == 1:
                db.executemany(
                    "INSERT INTO balances VALUES (?, ?) ON CONFLICT (account)"
                    " DO UPDATE SET amount = amount + excluded.amount",
                    rows,
                )
            db.execute("COMMIT")

    def applied(application):
        with connect() as db:
            query = "SELECT max(version) FROM versions WHERE application = ?"
            return db.execute(query, [application]).fetchone()[0]

    return write, applied
