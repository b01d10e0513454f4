"""The scoreboard: sinks of Spark under kills. ``python -m benchmarks.scoreboard`` makes the table.

``contestants`` says what runs, ``job`` is the Spark driver of all of them, ``measure`` runs and kills
it by ``abs_chaos`` and audits the target, ``table`` writes page and README from the result file.
"""
