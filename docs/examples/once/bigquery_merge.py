"""Adds each batch to balances in BigQuery. Not run here: it needs an account."""

from hashlib import sha256

from google.cloud import bigquery

NEWER = """
    BEGIN TRANSACTION;
    MERGE INTO {dataset}.versions USING
        (SELECT @application AS application, @version AS version) AS token
    ON versions.application = token.application
    WHEN MATCHED AND versions.version < token.version THEN UPDATE SET version = token.version
    WHEN NOT MATCHED THEN INSERT ROW;
    IF @@row_count = 1 THEN
        MERGE INTO {dataset}.balances USING
            (SELECT account, sum(amount) AS amount FROM {dataset}.{batch} GROUP BY account) AS batch
        ON balances.account = batch.account
        WHEN MATCHED THEN UPDATE SET amount = balances.amount + batch.amount
        WHEN NOT MATCHED THEN INSERT ROW;
    END IF;
    COMMIT TRANSACTION;
"""


def guarded(dataset):
    """``write`` and ``applied`` for a dataset with the tables balances and versions."""
    client = bigquery.Client()

    def with_token(**values):
        kinds = {str: "STRING", int: "INT64"}
        parameters = [
            bigquery.ScalarQueryParameter(n, kinds[type(v)], v) for n, v in values.items()
        ]
        return bigquery.QueryJobConfig(query_parameters=parameters)

    def write(df, token):
        # Each try replaces it with the same rows; two applications may have one version.
        batch = f"batch_{sha256(str(token).encode()).hexdigest()}"
        df.write.format("bigquery").option("writeMethod", "direct").mode("overwrite").save(
            f"{dataset}.{batch}"
        )
        statement = NEWER.format(dataset=dataset, batch=batch)
        # Concurrent transactions on one row: BigQuery cancels one of them, with an error.
        client.query_and_wait(statement, job_config=with_token(**token._asdict()))
        client.delete_table(f"{dataset}.{batch}", not_found_ok=True)

    def applied(application):
        query = f"SELECT max(version) FROM {dataset}.versions WHERE application = @application"
        [[version]] = client.query_and_wait(query, job_config=with_token(application=application))
        return version

    return write, applied
