"""Adds each batch to balances in Snowflake. Not run here: it needs an account."""

from hashlib import sha256

import snowflake.connector

NEWER = """
    MERGE INTO versions USING (SELECT %(application)s AS application, %(version)s AS version) AS token
    ON versions.application = token.application
    WHEN MATCHED AND versions.version < token.version THEN UPDATE SET version = token.version
    WHEN NOT MATCHED THEN INSERT (application, version) VALUES (token.application, token.version)
"""
MERGE = """
    MERGE INTO balances USING
        (SELECT account, sum(amount) AS amount FROM {batch} GROUP BY account) AS batch
    ON balances.account = batch.account
    WHEN MATCHED THEN UPDATE SET amount = balances.amount + batch.amount
    WHEN NOT MATCHED THEN INSERT (account, amount) VALUES (batch.account, batch.amount)
"""


def guarded(account, spark_options):
    """``write`` and ``applied``.

    Of the tables versions needs one row for each application before the first batch: an INSERT that two
    transactions make at once is not a conflict in Snowflake, an UPDATE of one row is.
    """

    def write(df, token):
        # Each try replaces it with the same rows; two applications may have one version.
        batch = f"batch_{sha256(str(token).encode()).hexdigest()}"
        df.write.format("snowflake").options(**spark_options, dbtable=batch).mode(
            "overwrite"
        ).save()
        with snowflake.connector.connect(**account, autocommit=False) as db, db.cursor() as cursor:
            if cursor.execute(NEWER, token._asdict()).rowcount == 1:
                cursor.execute(MERGE.format(batch=batch))
            db.commit()
            cursor.execute(f"DROP TABLE IF EXISTS {batch}")

    def applied(application):
        with snowflake.connector.connect(**account) as db, db.cursor() as cursor:
            query = "SELECT max(version) FROM versions WHERE application = %s"
            return cursor.execute(query, [application]).fetchone()[0]

    return write, applied
