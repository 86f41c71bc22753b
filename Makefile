# Every target sets up .venv by itself; nothing needs to be installed by hand but Python 3.11+.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed
QUICK_SPARK := .venv/spark/classes.jsa
# Tests, benchmarks and the demo start hundreds of processes: what was compiled once is kept, even if
# the environment says otherwise.
export PYTHONDONTWRITEBYTECODE :=
# Many tests wait for processes that start or for timers that run out, so two cores serve three
# workers; and whoever is done first takes over from the others.
WORKERS := --dist worksteal -n
NIGHT := tests/serving/test_night.py
PEERS := mosquitto:mosquitto nats-server:nats-server redis-server:redis-server "gcc:gcc libc6-dev"
DATABASES := pg_lsclusters:postgresql mariadbd:mariadb-server

.PHONY: help demo test check verify sim bench bench-full soak lock screenshots documents vectors clean
.DEFAULT_GOAL := help

help:
	@echo "make demo     see Roskva at work"
	@echo "make test     checks and tests (minutes)"
	@echo "make check    lint, format, types, import rules"
	@echo "make verify   the long checks: mutants, exhaustive exploration, fuzzing, kill loops"
	@echo "make sim      500 simulated clusters under faults"
	@echo "make bench    measure it, beside papers and brokers (make bench-full: longer)"
	@echo "make screenshots   renew the pictures of the console in docs/images"
	@echo "make lock     renew requirements.lock;  make vectors   renew spec/vectors"
	@echo "make documents     renew the pages of docs that are made from the code"

$(STAMP): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Roskva needs Python 3.11 or newer; name one with: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

# Once, as part of setting up: the tests' Sparks start with half of the work.
$(QUICK_SPARK): $(STAMP)
	@tools/java.sh
	@$(BIN)/python -m tests.quick_spark

demo: $(STAMP)
	@tools/debian.sh curl:curl mosquitto_sub:mosquitto-clients
	@tools/java.sh
	@$(BIN)/roskva demo

check: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: check $(QUICK_SPARK)
	@tools/debian.sh mosquitto_sub:mosquitto-clients chromium:chromium $(DATABASES)
	@tools/java.sh
	@tools/kafka.sh
	$(BIN)/pytest $(WORKERS) 3 -m "not verify" --durations 15 --costs

verify: check $(QUICK_SPARK)
	@tools/debian.sh mosquitto_sub:mosquitto-clients chromium:chromium $(DATABASES) $(PEERS)
	@tools/java.sh
	@tools/kafka.sh
	@tools/postgres.sh
	$(BIN)/roskva sim --mutants
	$(BIN)/roskva sim --exhaustive
	$(BIN)/roskva sim --seeds 500
	$(BIN)/roskva sim --profile sources --seeds 100
	$(BIN)/pytest $(WORKERS) 2 -m verify

soak: $(STAMP)
	ROSKVA_KILL_ROUNDS=500 $(BIN)/pytest $(WORKERS) 2 -m verify tests/feed tests/store
	ROSKVA_KILL_ROUNDS=300 $(BIN)/pytest $(WORKERS) 2 -m verify tests/serving --ignore $(NIGHT)
	@tools/java.sh
	ROSKVA_SOAK_MINUTES=20 $(BIN)/pytest -s -m verify $(NIGHT)
	ROSKVA_KILL_ROUNDS=100 $(BIN)/pytest -m verify tests/pipeline/test_with_node.py
	@tools/postgres.sh
	ROSKVA_KILL_ROUNDS=20 ROSKVA_WORK_MINUTES=10 ROSKVA_WORK_KILLS=40 ROSKVA_READS=3000 ROSKVA_MUTATIONS=100000 ROSKVA_ROWS=1000000 \
	  $(BIN)/pytest -s -m verify tests/sources

sim: $(STAMP)
	$(BIN)/roskva sim --seeds 500
	$(BIN)/roskva sim --profile sources --seeds 100

bench: $(STAMP)
	@tools/debian.sh $(PEERS) $(DATABASES) mvn:maven
	@tools/java.sh
	$(BIN)/roskva bench --report docs/benchmarks

bench-full: $(STAMP)
	@tools/debian.sh $(PEERS) $(DATABASES) mvn:maven
	@tools/java.sh
	$(BIN)/roskva bench --full --report docs/benchmarks

screenshots: $(STAMP)
	@tools/debian.sh chromium:chromium
	@tools/java.sh
	$(BIN)/python -m tests.console.screenshots

documents: $(STAMP)
	$(BIN)/python -m tools.documents

vectors: $(STAMP)
	$(BIN)/python -m tests.wire.vectors

lock:
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet pip-tools
	$(BIN)/pip-compile --quiet --upgrade --generate-hashes --allow-unsafe --extra dev --extra kafka --extra mysql --extra postgres --extra spark --strip-extras \
	  --no-emit-index-url --no-emit-trusted-host --no-emit-find-links --output-file requirements.lock pyproject.toml

clean:
	rm -rf .venv build dist .hypothesis .mypy_cache .pytest_cache .ruff_cache
