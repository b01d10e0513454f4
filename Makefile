# `make demo` and `make test` do all of their own set-up; they need Python 3.11+ and Java 17+.
.PHONY: demo quick test failed check prefetch proof bench figures scoreboard campaign matrix site setup
BIN := .venv/bin
# Test processes at once; each has servers of its own, and half of them a Spark session (tests/schedule.py).
JOBS ?= 5
# Compiled modules are kept: hundreds of short processes (Spark's workers, crash tests) import the same ones.
unexport PYTHONDONTWRITEBYTECODE
# numpy would start a thread for each core in each of these processes, which looks for work.
export OPENBLAS_NUM_THREADS := 1
export PYSPARK_PYTHON := $(CURDIR)/$(BIN)/python
export PYSPARK_DRIVER_PYTHON := $(PYSPARK_PYTHON)
# Of all checkouts: mypy takes what a file has taught it by the file's content.
export MYPY_CACHE_DIR ?= $(or $(ABS_CACHE),$(or $(XDG_CACHE_HOME),$(HOME)/.cache)/abs-sinks)/mypy

setup:
	@./bootstrap

demo: setup ## real data through three queries, then to three targets in one; killed again and again, audited
	@$(BIN)/abs demo --route chain
	@$(BIN)/abs demo --route epoch

quick: setup ## tests without servers, Spark and killed processes: what to run while you write
	$(BIN)/python -m pytest -m "not campaign and not services and not spark and not long" -n 3 --dist loadfile

test: setup ## everything CI runs
	@$(MAKE) --no-print-directory -j2 check prefetch
	$(BIN)/python -m pytest -m "not campaign" -n $(JOBS) --dist loadfile

failed: ## the tests that failed in the last run, alone
	$(BIN)/python -m pytest -m "not campaign" --last-failed --last-failed-no-failures none

check: setup ## style, types, the direction of dependencies, and packages that fit each other
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pip check --disable-pip-version-check

prefetch: setup ## fetches and makes what the tests need once
	@$(BIN)/python -m tests.prefetch

proof: setup ## TLC, Porcupine (needs Go), power cuts (FUSE), other readers (javac, curl); docs/explanation/proof.md
	$(BIN)/python -m pytest -s -m "campaign or not campaign" tests/spec tests/porcupine \
		tests/core/test_power_loss.py tests/sinks/test_power_loss.py tests/spark/test_spark_third_readers.py

bench: setup ## ratios against peers and limits; see benchmarks/README.md
	$(BIN)/python -m benchmarks

figures: setup ## results, figures and README once more, the most important ones; 25 minutes on a quiet machine
	$(BIN)/python -m benchmarks.renew

scoreboard: setup ## rows a second that are correct under kills, ours beside other sinks and recipes; an hour
	$(BIN)/python -m benchmarks.scoreboard

# Hours; MINUTES=30 stops after so many and says what share of the tests ran.
campaign: setup ## what the sample of `make test` leaves out, with a new seed each time
	ABS_TEST_SEED=$${ABS_TEST_SEED:-$$(date +%s)} $(BIN)/python -m pytest -m "campaign or hypothesis" \
		--hypothesis-profile campaign --minutes $(or $(MINUTES),0)

matrix: setup ## the same killed and audited job on PySpark 3.5, 4.0, 4.1, 4.2 and 4.3
	@$(BIN)/python -m tests.prefetch matrix
	$(BIN)/python -m pytest -m "campaign or not campaign" -n 2 --dist worksteal --durations=0 \
		tests/spark/test_spark_versions.py

site: setup ## the documentation as a site, in build/site; every link and anchor is checked
	$(BIN)/python docs/make_site.py
