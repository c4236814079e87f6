# What a person runs; `.ci/run` calls the same targets.

PYTHON ?= python3
VENV ?= .venv
# How many processes run the tests; those that share a server go one after the other.
# Most of them wait for most of their time.
N ?= $(if $(MYSQL_URL)$(MARIADB_URL),0,4)
SPARK_N ?= $(if $(filter 0 1,$(N)),$(N),2)
BIN := $(VENV)/bin
SOURCES := pyproject.toml setup.py MANIFEST.in $(wildcard deploy/man/* deploy/completion/*) $(shell find canal_server pyspark_canal -name '*.py*' -not -name '*.pyc' -o -name '*.pxd')
CHECKED := canal_server pyspark_canal tests tools benchmarks

.PHONY: help demo demo-spark test test-slow test-lake docs bench bench-spark bench-kafka bench-mirror spark-plot format dev
.PHONY: servers clean soak wheels
.PHONY: lock audit sbom matrix
.PHONY: demo-needs lint lint-format lint-style lint-types lint-dead

help:
	@echo 'make demo    show changes of a private MySQL arriving at a client'
	@echo 'make demo-spark  show a mirror of a small shop; needs Java 17 or 21'
	@echo 'make test    build the package, run the tests on it; T=path runs some,'
	@echo '             N=2 has two processes run most of them instead of four;'
	@echo '             LOCKED=1 installs what deploy/locks pins'
	@echo 'make test-slow  the tests that take longer, also those of Spark, which need Java'
	@echo '             17 or 21; SPARK_N=1 has one process run them instead of two'
	@echo 'make test-lake  the tests of the mirror with object stores, catalogs and engines of'
	@echo '             others, which it fetches, and with more kills: hours; T=path runs some'
	@echo 'make docs    build the documents as pages for a browser, in build/site; fails'
	@echo '             where a link leads nowhere'
	@echo 'make bench   measure speed and memory; B=--quick tries it out'
	@echo 'make bench-spark  the same of the Spark source; needs Java 17 or 21'
	@echo 'make bench-kafka  only the delivery to Kafka, which needs Java and mvn'
	@echo 'make bench-mirror  the same of the mirror; needs Java 17 or 21'
	@echo 'make spark-plot'
	@echo '             draw how soon changes are in Spark; needs Java 17 or 21;'
	@echo '             S="--seconds 60" for longer'
	@echo 'make soak    run everything at once for 10 minutes, with faults, and show what was'
	@echo '             lost; HOURS=2 or MINUTES=5 for other times, SEED=7 to do it again;'
	@echo '             needs Java 17 or 21'
	@echo 'make matrix  run the tests of sources on releases of all ages, and show a table;'
	@echo '             M=mysql-5.6 runs some'
	@echo 'make wheels  build an sdist and wheels for the Pythons of this machine into dist,'
	@echo '             and try them; W="--native --python 3.12" builds some'
	@echo 'make lock    pin all dependencies with their hashes in deploy/locks; L=--upgrade pins'
	@echo '             the newest ones'
	@echo 'make audit   look up known vulnerabilities of what is pinned; A="-s osv" asks OSV'
	@echo 'make sbom    list what is in the wheel, and in what it runs with, in build/sbom'
	@echo 'make lint    check format, style and types; make format mends the first two'
	@echo 'make dev     install an editable build for working on the code'

demo: demo-needs $(VENV)/installed
	@$(BIN)/python tools/demo.py

demo-spark: demo-needs $(VENV)/installed
	@$(BIN)/pip install --quiet 'canal-server[mirror]'
	@$(BIN)/python tools/demo_spark.py $(S)

demo-needs:
	@tools/demo_needs.sh '$(PYTHON)' '$(VENV)'

# The tests see the installed package, not the checkout: what is tested is what ships.
# Each process has servers of its own; one that is done early takes over from the others.
# In CI, tests that fail run once more alone (tools/run_tests.py).
RUN_TESTS = $(BIN)/python tools/run_tests.py -n $(N) --spark-n $(SPARK_N) $(if $(CI),--second-try)
test: export CANAL_TEST_INSTALLED = 1
test: $(VENV)/installed servers
	$(if $(T),$(BIN)/pytest $(T),$(RUN_TESTS) --only quick)

test-slow: export CANAL_TEST_INSTALLED = 1
test-slow: $(VENV)/installed servers
	$(RUN_TESTS) --only slow

# What the other two skip, as it needs servers and programs of others, or hours.
LAKE_TESTS := tests/mirror tests/interop/test_delta_streams.py \
	tests/interop/test_delta_streams_beside_mirror.py tests/interop/test_lake_values.py
test-lake: export CANAL_TEST_INSTALLED = 1
test-lake: export CANAL_INTEROP = 1
test-lake: export CANAL_TEST_LONGER := $(or $(LONGER),2)
test-lake: $(VENV)/installed servers
	$(BIN)/pytest -m '' -rs $(or $(T),$(LAKE_TESTS))

# First writes the pages that come from the code. A link or an anchor that does not exist,
# and a page that is not in the navigation, fail the build.
docs: export NO_MKDOCS_2_WARNING = 1
docs: $(VENV)/installed
	$(BIN)/python tools/reference/build.py
	$(BIN)/mkdocs build --strict --site-dir build/site

bench: $(VENV)/installed
	$(BIN)/python benchmarks/run.py $(B)
	$(BIN)/pip install --quiet 'canal-server[kafka]'
	$(BIN)/python benchmarks/kafka_mode.py $(filter --quick,$(B))

bench-spark: $(VENV)/installed
	$(BIN)/pip install --quiet 'canal-server[spark]'
	$(BIN)/python benchmarks/range_memory.py $(filter --quick,$(B))
	$(BIN)/python benchmarks/spark_source.py $(B)

bench-kafka: $(VENV)/installed
	$(BIN)/pip install --quiet 'canal-server[kafka]'
	$(BIN)/python benchmarks/kafka_mode.py $(B)

bench-mirror: $(VENV)/installed
	$(BIN)/pip install --quiet 'canal-server[mirror]'
	$(BIN)/python benchmarks/mirror.py $(B)

# What is installed already is used: this installs Spark and compiles nothing.
spark-plot: $(VENV)/installed
	$(BIN)/pip install --quiet 'canal-server[spark]'
	$(BIN)/python benchmarks/spark_plot.py $(S)

# The installed package is what runs, not the checkout: hence the folder.
soak: $(VENV)/installed servers
	$(BIN)/pip install --quiet 'canal-server[mirror]'
	cd tools && $(abspath $(BIN))/python -m soak --plot '$(CURDIR)/soak.svg' \
		$(if $(HOURS),--hours $(HOURS)) $(if $(MINUTES),--minutes $(MINUTES)) \
		$(if $(SEED),--seed $(SEED)) $(S)

# Releases whose programs cannot be had are listed with the reason.
matrix: export CANAL_TEST_INSTALLED = 1
matrix: $(VENV)/installed
	$(BIN)/python tools/server_matrix.py $(M)

# They run in new environments; those for arm64 in an emulator.
wheels: export CANAL_TEST_INSTALLED = 1
wheels: export CANAL_TEST_WHEELS = dist
wheels: $(VENV)/installed
	$(BIN)/python tools/wheels.py $(W)
	$(BIN)/pytest --timeout=0 tests/packaging

# Needs no build, as that might need the lock.
lock: $(BIN)/python
	$(BIN)/pip install --quiet uv packaging
	$(BIN)/python tools/lock.py $(L)

# Skipped with the reason where the data cannot be had.
audit: $(VENV)/installed
	$(BIN)/python tools/audit.py $(A)

# What an image has of Python, in an environment like its own; the bill of an image, with
# the packages of its Debian, is made when that is built (Dockerfile).
sbom: IN_SBOM := $(BIN)/pip --python build/sbom/environment/bin/python
sbom: $(VENV)/installed
	$(PYTHON) -m venv --clear --without-pip build/sbom/environment
	$(IN_SBOM) install --quiet --require-hashes --requirement deploy/locks/server.txt
	$(IN_SBOM) install --quiet --no-deps build/package/*.whl
	$(BIN)/python tools/sbom.py environment build/sbom/environment/bin/python \
		>build/sbom/server.cdx.json
	$(BIN)/python tools/sbom.py wheel build/package/*.whl >build/sbom/wheel.cdx.json

# `make --keep-going lint` shows all problems at once.
lint: lint-format lint-style lint-types lint-dead

lint-format: $(VENV)/installed
	$(BIN)/ruff format --check $(wildcard $(CHECKED))

lint-style: $(VENV)/installed
	$(BIN)/ruff check $(wildcard $(CHECKED))

# What nothing uses; the exceptions, and why, are in pyproject.toml.
lint-dead: $(VENV)/installed
	$(BIN)/vulture

# Test functions may be untyped; everything else is as strict as the package.
lint-types: $(VENV)/installed
	$(BIN)/mypy
	MYPYPATH=$(subst $(eval ) ,:,tools tests benchmarks tests/support $(wildcard tests/support/*/)) $(BIN)/mypy --explicit-package-bases --allow-untyped-defs \
		--allow-incomplete-defs --allow-untyped-calls --allow-untyped-decorators \
		$(wildcard tools tests benchmarks)

format:
	$(BIN)/ruff format $(wildcard $(CHECKED))
	$(BIN)/ruff check --fix $(wildcard $(CHECKED))

dev: $(BIN)/python
	$(BIN)/pip install --quiet --editable '.[dev]'
	@rm -f $(VENV)/installed

# Where a server cannot be had, its tests are skipped with the reason.
servers: $(VENV)/installed
	-$(BIN)/python tools/servers.py prepare
	-$(BIN)/python tools/zookeepers.py prepare

clean:
	rm -rf $(VENV) build dist *.egg-info
	find canal_server \( -name '*.so' -o -name '*.c' \) -delete

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

# From an sdist, as others build it; a folder left by an earlier build would bring
# modules that were deleted. tests/packaging checks both files.
$(VENV)/installed: $(SOURCES) | $(BIN)/python
	rm -rf build
	$(BIN)/pip install --quiet build
	$(BIN)/python -m build --quiet --outdir build/package
	$(BIN)/pip install --quiet --force-reinstall --no-deps build/package/*.whl
	$(BIN)/pip install --quiet $(if $(LOCKED),--require-hashes \
		--requirement deploy/locks/dev.txt,'canal-server[dev]')
	@touch $@
