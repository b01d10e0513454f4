"""Each sentence of the README that promises something has a test, or figures that a program wrote."""

from __future__ import annotations

from tests.docs.test_links import ROOT
from tests.remedies.test_every_remedy import is_there

EPOCHS, BIRTHS = "tests/spark/test_spark_epoch_kills.py", "tests/spark/test_spark_births.py"
SERVERS, TWO_PHASE = (
    "tests/spark/test_spark_killed_servers.py",
    "tests/sinks/kafka/test_kafka_two_phase.py",
)
BAD_INPUT = "tests/sinks/postgres/test_pg_bad_input.py"
TORN = "test_no_epoch_is_torn_by_a_server_that_is_killed_in_its_midst_and_away_for_a_minute"
TWIN = "test_a_decided_transaction_outlives_its_timeout_and_a_killed_broker_and_its_twin_is_lost"
TWO = "test_of_two_drivers_on_copies_of_one_checkpoint_one_writes_to_all_targets"
CLAIMS: dict[str, tuple[str, ...]] = {
    "one has rows that the other lacks, or has them twice": (
        "tests/benchmarks/test_bench_situations.py::test_the_page_is_made_from_the_result_and_a_changed_verdict_is_found",
    ),
    "both have the epoch, each row once, or neither": (
        f"{EPOCHS}::test_killed_anywhere_an_epoch_is_in_all_targets_once",
    ),
    "nothing is missing, nothing twice": (
        "tests/demo/test_demo_epoch.py::test_one_query_writes_every_flight_to_each_target_once_over_kills",
    ),
    "streams 336,776 real flights": (
        "tests/demo/test_demo_run.py::test_three_queries_through_kafka_write_every_flight_exactly_once_over_kills",
    ),
    "`abs chaos` kills your own job": (
        "tests/packaging/test_plugin.py::test_the_lines_of_the_page_say_no_to_sparks_own_kafka_sink_and_yes_to_ours",
    ),
    "crash after the decision:  the next run commits the rest": (
        f"{EPOCHS}::test_killed_anywhere_an_epoch_is_in_all_targets_once",
    ),
    "SIGKILL of any process or server": (
        "tests/spark/test_spark_cluster.py::test_an_executor_and_the_driver_are_killed",
        f"{SERVERS}::{TORN}",
    ),
    "replays": (
        "tests/spark/test_spark_files.py::test_a_job_from_files_to_postgres_is_exact_over_a_kill_and_replays",
    ),
    "speculation": (
        "tests/spark/test_spark_cluster.py::test_a_task_that_stands_still_is_overtaken_by_its_speculative_copy",
    ),
    "two drivers": (f"{EPOCHS}::{TWO}",),
    "a driver that stood still": (f"{EPOCHS}::{TWO}",),
    "lost replies": (
        "tests/sinks/delta/test_delta_rivals.py::test_a_commit_whose_reply_is_lost_is_looked_up",
        "tests/sinks/kafka/test_kafka_positions.py::test_a_request_or_reply_of_librdkafka_that_is_lost_loses_and_doubles_nothing",
    ),
    "a checkpoint or register that was deleted, moved or": (
        f"{BIRTHS}::test_a_deleted_checkpoint_of_a_job_without_a_name_is_refused",
        f"{BIRTHS}::test_a_dropped_register_is_not_taken_for_a_new_one",
        f"{BIRTHS}::test_a_register_restored_from_an_old_backup_is_refused",
        f"{BIRTHS}::test_a_checkpoint_under_another_job_name_is_refused",
    ),
    "or decided records are lost, and the query says": (f"{TWO_PHASE}::{TWIN}",),
    "PostgreSQL `2pc` needs `max_prepared_transactions`": (
        f"{BAD_INPUT}::test_without_prepared_transactions_2pc_is_refused_and_wal_works",
    ),
    "`abs_spark.epoch` 3.5 ([versions]": (
        "tests/spark/test_spark_versions.py::test_a_job_that_is_killed_and_replayed_is_exact_in_all_targets",
    ),
    "Above 1, abs-sinks is faster": (
        "tests/benchmarks/test_bench_summary.py::test_the_figures_of_the_readme_are_those_of_the_results",
        "tests/benchmarks/test_bench_scoreboard.py::test_the_readmes_rows_are_made_from_the_result",
    ),
}


def unproven(text: str, claims: dict[str, tuple[str, ...]]) -> list[str]:
    told = [f"the README no longer says: {claim}" for claim in claims if claim not in text]
    tests = [test for tests in claims.values() for test in tests]
    return told + [f"there is no {test}" for test in tests if not is_there(test)]


def test_each_claim_of_the_readme_has_a_test() -> None:
    assert unproven((ROOT / "README.md").read_text(), CLAIMS) == []


def test_a_claim_without_its_test_is_found() -> None:
    planted = {**CLAIMS, "replays": ("tests/spark/test_spark_files.py::test_of_nothing",)}
    text = (ROOT / "README.md").read_text().replace("two drivers", "many drivers")
    assert unproven(text, planted) == [
        "the README no longer says: two drivers",
        "there is no tests/spark/test_spark_files.py::test_of_nothing",
    ]
