"""Adds each batch to balances in a Delta table; the version is an application transaction there."""

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

SCHEMA = pa.schema([("account", pa.int64()), ("amount", pa.int64())])


def guarded(path):
    """``write`` and ``applied`` for the table at a path."""
    DeltaTable.create(path, SCHEMA, mode="ignore")

    def write(df, token):
        table = DeltaTable(path)
        version = applied(token.application)
        if version is not None and version >= token.version:
            return
        # The commit is of exactly the snapshot that was looked at: with any commit in between it fails,
        # and the library does not try again.
        properties = CommitProperties(
            app_transactions=[Transaction(token.application, token.version)], max_commit_retries=0
        )
        batch = df.groupBy("account").agg({"amount": "sum"}).toDF("account", "amount").toArrow()
        if batch.num_rows == 0:  # a merge that changes nothing makes no commit
            write_deltalake(table, batch, mode="append", commit_properties=properties)
            return
        table.merge(
            batch,
            "target.account = source.account",
            source_alias="source",
            target_alias="target",
            commit_properties=properties,
        ).when_matched_update(
            {"amount": "target.amount + source.amount"}
        ).when_not_matched_insert_all().execute()

    def applied(application):
        # RESTORE takes rows back, and keeps the versions of applications: what the restored state had
        # is there, unless the application has written since.
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
