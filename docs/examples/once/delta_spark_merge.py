"""Adds each batch to balances in a Delta table by delta-spark's own MERGE, as an idempotent write."""

from deltalake import DeltaTable

TABLE = "CREATE TABLE IF NOT EXISTS delta.`{path}` (account BIGINT, amount BIGINT) USING delta"
MERGE = """
    MERGE INTO delta.`{path}` AS balances USING
        (SELECT account, sum(amount) AS amount FROM {batch} GROUP BY account) AS batch
    ON balances.account = batch.account
    WHEN MATCHED THEN UPDATE SET amount = balances.amount + batch.amount
    WHEN NOT MATCHED THEN INSERT (account, amount) VALUES (batch.account, batch.amount)
"""
APPLICATION = "spark.databricks.delta.write.txnAppId"
VERSION = "spark.databricks.delta.write.txnVersion"


def guarded(path):
    """``write`` and ``applied`` for the table at a path."""

    def write(df, token):
        # A session of its own, so that no other write of the query takes the two settings.
        spark = df.sparkSession.newSession()
        spark.sql(TABLE.format(path=path))
        spark.conf.set(APPLICATION, token.application)
        # The MERGE does nothing if the table has this version or a higher one; of two commits of one
        # application at the same time, the second fails.
        spark.conf.set(VERSION, str(token.version))
        df.createOrReplaceGlobalTempView("batch_of_balances")
        spark.sql(MERGE.format(path=path, batch="global_temp.batch_of_balances"))

    def applied(application):
        if not DeltaTable.is_deltatable(path):
            return None
        return DeltaTable(path).transaction_version(application)

    return write, applied
