# Everything a fresh machine needs is here: Python 3.11 or newer, and nothing else prepared.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
SCALE ?= 1
MINUTES ?= 10
SEED := $(or $(SEED),$(shell date +%s))

.PHONY: demo help hooks test test-slow lint types check torture soak bench clean

demo: $(READY)            ## show what omnigraph does: a million edges on Spark, with dirt; then maintenance and a merge; SCALE= for more or fewer
	$(BIN)/omnigraph demo --scale $(SCALE)

help:                     ## list the targets
	@awk -F ':.*## ' '/^[a-z][a-z-]*:.*## / { printf "%-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# Bytecode is kept, whatever the shell says: without it each of hundreds of processes compiles all of it again.
unexport PYTHONDONTWRITEBYTECODE

# Asserts are rewritten once, by the first line, and not by every worker; what is wrong there, the second line tells.
test: $(READY)            ## the whole test suite, five files at a time, since they also wait
	-@$(BIN)/python -m pytest --collect-only -qq > /dev/null
	$(BIN)/python -m pytest --numprocesses 5 --dist loadscope --no-loadscope-reorder --durations=10

test-slow: $(READY)       ## what takes longer: samples of every fault, clusters, many processes, random runs
	$(BIN)/python -m pytest -m 'slow and not long' --numprocesses 5 --dist loadscope --no-loadscope-reorder --durations=10

lint: $(READY)            ## ruff: rules and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)           ## mypy --strict
	$(BIN)/mypy

hooks: $(READY)           ## install the git hooks that run ruff and mypy before every commit
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --group hooks
	$(BIN)/pre-commit install

check: lint types test test-slow    ## what CI runs

torture: $(READY)         ## every fault at every storage request and file system call, and whatever else is long (hours)
	$(BIN)/python -m tests.commit.test_interleavings
	OMNIGRAPH_WRITES=50 $(BIN)/python -m pytest -m '' tests/contention/test_writers.py
	OMNIGRAPH_RANDOM_GRAPHS=150 OMNIGRAPH_RANDOM_QUERIES=20 OMNIGRAPH_RANDOM_SEED=$(SEED) \
		$(BIN)/python -m pytest --numprocesses 2 tests/query/test_random.py
	OMNIGRAPH_STEPS=20 OMNIGRAPH_SEEDS=$(SEED) $(BIN)/python -m pytest -m 'not long' \
		tests/maintenance/optimize/test_answers_random.py tests/maintenance/optimize/test_deferred.py
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --group long
	$(BIN)/python -m pytest -m long
	$(BIN)/python -m tests.faults.runner --all

soak: $(READY)            ## many processes under random kills, stops and lost answers; maintenance beside live writers; both together on disk and S3; MINUTES= each
	$(BIN)/python -m tests.contention.soak --minutes $(MINUTES)
	$(BIN)/python -m tests.contention.soak_maintenance --minutes $(MINUTES)
	$(BIN)/python -m tests.contention.soak_mixed --minutes $(MINUTES) --store disk
	$(BIN)/python -m tests.contention.soak_mixed --minutes $(MINUTES) --store s3

bench: $(READY)           ## every claim of speed, as a ratio measured in one run
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --group bench
	$(BIN)/python -m benchmarks

$(READY): pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit("omnigraph needs Python 3.11 or newer; run: make PYTHON=python3.11") if sys.version_info < (3, 11) else None'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check "pip>=25.1"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable . --group dev
	touch $(READY)

clean:                    ## remove the virtual environment and the caches of tools
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis
