# Everything there is to run here; `make` alone lists it. Each target creates the environment it needs.

PYTHON ?= python3
BIN := .venv/bin
BENCH := .venv-bench/bin

export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_ROOT_USER_ACTION := ignore
# Without compiled files pytest would rewrite every test module anew, in each of its processes: 10 s of CPU time each.
unexport PYTHONDONTWRITEBYTECODE
MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := help
.PHONY: help up test check lint quick bench-pool bench-keep bench-manager bench-routing bench-transports torture-pool torture-keep torture-manager format lock clean rabbitmq postgresql

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-16s %s\n", $$1, $$2}' Makefile

up: .venv/ready ## Run the example app: a worker and its API on 127.0.0.1:8420
	@exec $(BIN)/canoa up examples.shop:app

test: .venv/ready rabbitmq postgresql lint ## Linters, then every test, with real brokers and databases
	@$(IN_MEMORY) $(BIN)/pytest -n 3 $(BY_FILE) || { [ $$? -eq 1 ] && { $(ALONE) || $(ALONE); }; }

# In the order of tests/order.py. By itself pytest would begin with the files of many tests, and end with one that has a
# single long one, alone.
BY_FILE = --dist loadfile --no-loadscope-reorder

# What fails beside others is tried alone, twice at most: a starved test is told apart from a broken one, and both are shown.
ALONE = { echo "--- Once more, alone: what failed above" && $(IN_MEMORY) $(BIN)/pytest --last-failed --maxfail=10; }

IN_MEMORY = .ci/in-memory

check: .venv/ready ## Linters and the tests that need no server, side by side within a minute
	@$(MAKE) -j2 --output-sync=target lint quick

# Three at a time, as above: a third of the time of these tests, too, is spent waiting.
quick: .venv/ready
	@$(IN_MEMORY) $(BIN)/pytest -q -n 3 $(BY_FILE) -m "not rabbitmq and not postgres" $(wildcard tests/unit tests/contract)

lint: .venv/ready
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy

bench-pool: .venv-bench/canoa rabbitmq ## Measure the pool beside other task queues, into build/bench/pool.json
	@.ci/apt-install redis-server=redis-server
	@$(BENCH)/python -m benchmarks.pool

bench-keep: .venv-bench/canoa rabbitmq postgresql ## Measure kept results beside other task queues, into build/bench/keep.json
	@.ci/apt-install redis-server=redis-server
	@$(BENCH)/python -m benchmarks.keep

bench-manager: .venv-bench/canoa rabbitmq postgresql ## Measure managers beside Celery, into build/bench/manager.json
	@.ci/apt-install redis-server=redis-server
	@$(BENCH)/python -m benchmarks.manager

bench-routing: .venv-bench/canoa rabbitmq ## Measure the ways to choose nodes beside each other, into build/bench/routing.json
	@$(BENCH)/python -m benchmarks.routing

bench-transports: .venv-bench/canoa rabbitmq ## Measure AMQP, MQTT and HTTP beside bare clients, into build/bench/transports.json
	@$(BENCH)/python -m benchmarks.transports

torture-pool: .venv/ready rabbitmq ## Kill workers a thousand times in twenty minutes and miss no result
	@$(BIN)/python -m tests.torture.pool --minutes 20 --kills 1000

torture-keep: .venv/ready ## Kill `canoa up` a hundred times under load and miss no result
	@$(BIN)/python -m tests.torture.keep --kills 100

torture-manager: .venv/ready rabbitmq postgresql ## Kill managers a hundred times under load and miss no result
	@$(BIN)/python -m tests.torture.manager --kills 100
	@$(BIN)/python -m tests.torture.manager --kills 100 --alone

format: .venv/ready ## Put the code into shape
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

LOCK := uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-header --no-annotate
lock: export PATH := $(CURDIR)/$(BIN):$(PATH)
lock: .venv/ready ## Resolve the dependencies anew, by hash
	@command -v uv >/dev/null || $(BIN)/pip install -q uv
	@$(LOCK) --all-extras --group dev pyproject.toml -o requirements/dev.lock
	@$(LOCK) --extra mqtt --extra server --group bench -c requirements/dev.lock pyproject.toml -o requirements/bench.lock

clean: ## Remove the environments and all that was generated
	@rm -rf .venv .venv-bench build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

rabbitmq:
	@.ci/apt-install rabbitmq-server=rabbitmq-server mosquitto_sub=mosquitto-clients mosquitto=mosquitto

postgresql:
	@.ci/apt-install initdb=postgresql

.venv/ready: requirements/dev.lock pyproject.toml
	@.ci/environment .venv requirements/dev.lock "$(PYTHON)"
	@$(BIN)/pip install -q --no-deps --no-build-isolation -e .
	@touch $@

.venv-bench/ready: requirements/bench.lock
	@.ci/environment .venv-bench requirements/bench.lock "$(PYTHON)"
	@touch $@

# What is measured is what a user installs: a wheel, built anew whenever the code changed.
.venv-bench/canoa: .venv/ready .venv-bench/ready $(shell find src -name '*.py')
	@$(BIN)/pip wheel -q --no-deps --no-build-isolation -w build/wheel .
	@$(BENCH)/pip install -q --no-deps --force-reinstall build/wheel/canoa-*.whl
	@touch $@
