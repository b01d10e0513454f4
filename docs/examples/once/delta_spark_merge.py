"""Adds each batch to balances in a Delta table by delta-spark's own MERGE, as an idempotent write."""

from uuid import uuid4

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
        # A view of all sessions: other queries of this application have theirs.
        batch = f"batch_{uuid4().hex}"
        df.createGlobalTempView(batch)
        try:
            spark.sql(MERGE.format(path=path, batch=f"global_temp.{batch}"))
        finally:
            spark.catalog.dropGlobalTempView(batch)

    def applied(application):
        # RESTORE takes rows back, and keeps the versions of applications: what the restored state had
        # is there, unless the application has written since.
        if not DeltaTable.is_deltatable(path):
            return None
        table = DeltaTable(path)
        at, version = table.version(), table.transaction_version(application)
        for commit in table.history():  # newest first
            if commit["version"] > at or commit["operation"] != "RESTORE":
                continue
            if DeltaTable(path, commit["version"]).transaction_version(application) != version:
                break
            at = commit["operationParameters"].get("version")
            if at is None:  # restored to a time: which version that was is not told
                return None
            at = int(at)
            version = DeltaTable(path, at).transaction_version(application)
        return version

    return write, applied
