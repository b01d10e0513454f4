"""Adds each batch to balances in PostgreSQL by a MERGE of your own, through psycopg."""

import psycopg

TABLES = """
    CREATE TABLE IF NOT EXISTS balances (account bigint PRIMARY KEY, amount bigint);
    CREATE TABLE IF NOT EXISTS versions (application text PRIMARY KEY, version bigint NOT NULL);
"""
NEWER = """
    INSERT INTO versions VALUES (%s, %s) ON CONFLICT (application)
    DO UPDATE SET version = excluded.version WHERE versions.version < excluded.version
"""
MERGE = """
    MERGE INTO balances USING
        (SELECT account, sum(amount) AS amount FROM batch GROUP BY account) AS batch
    ON balances.account = batch.account
    WHEN MATCHED THEN UPDATE SET amount = balances.amount + batch.amount
    WHEN NOT MATCHED THEN INSERT VALUES (batch.account, batch.amount)
"""


def guarded(url):
    """``write`` and ``applied`` for the database of a URL."""
    with psycopg.connect(url) as db:
        db.execute(TABLES)

    def write(df, token):
        with psycopg.connect(url) as db:  # commits at its end, or rolls back
            # A second write of this application waits here, and then finds the version taken.
            if db.execute(NEWER, token).rowcount == 0:
                return
            db.execute("CREATE TEMP TABLE batch (LIKE balances) ON COMMIT DROP")
            with db.cursor().copy("COPY batch FROM STDIN") as copy:
                for row in df.select("account", "amount").toLocalIterator():
                    copy.write_row(tuple(row))
            db.execute(MERGE)

    def applied(application):
        with psycopg.connect(url) as db:
            query = "SELECT max(version) FROM versions WHERE application = %s"
            return db.execute(query, [application]).fetchone()[0]

    return write, applied
