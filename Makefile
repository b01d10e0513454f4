# `make demo` and `make test` do all of their own set-up; they need Python 3.11+ and Java 17+.
.PHONY: demo test check bench campaign setup
BIN := .venv/bin
# Test processes at once; each has servers and a Spark session of its own.
JOBS ?= 2
export PYSPARK_PYTHON := $(CURDIR)/$(BIN)/python
export PYSPARK_DRIVER_PYTHON := $(PYSPARK_PYTHON)

setup:
	@./bootstrap

demo: setup ## three streaming queries over real data, killed again and again, then audited
	@$(BIN)/abs demo --route chain

test: check ## everything CI runs
	$(BIN)/python -m pytest -m "not campaign" -n $(JOBS) --dist loadfile

check: setup ## style, types, and the direction of dependencies
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: setup ## ratios against peers and limits; see benchmarks/README.md
	$(BIN)/python -m benchmarks

campaign: setup ## the long tests: larger state spaces, full crash products through Spark
	$(BIN)/python -m pytest -m campaign
