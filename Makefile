# Two commands matter: `make demo` and `make test`. Both work from an empty clone.
PYTHON ?=
export PYTHON
# Tests start hundreds of brokers: with bytecode on disk a start costs half, wherever the sources may be written to.
export PYTHONPYCACHEPREFIX ?= $(CURDIR)/.pycache
unexport PYTHONDONTWRITEBYTECODE
BIN := .venv/bin
SEEDS ?= 200
FRAMES ?= 1000000
KILLS ?= 200
SCHEDULES ?= 20000
UPDATES ?= 1000000
RECORDS ?= 1000000
MINUTES ?= 10
SAMPLE ?= 200
SEED ?= 1
KEEP ?=
RECORD ?=
PEERS ?=
ORIGIN ?= http://localhost:9324
VERSIONS ?=

.PHONY: coverage packages site views demo demo-delivery test lint unit clients sim sim-queues mutants fuzz rest-fuzz console console-test console-pictures eos eos-sim pipeline-kills compaction torture torture-single interop python-versions stopwatch spark-versions security bench bench-guard bench-peers limits lock audit docs clean help

help:  ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

env:
	@scripts/setup dev spark

demo:  ## start a broker, publish and consume through it, show the result, ask it with Spark, stop: make demo KEEP=1 leaves it open
	@scripts/setup spark
	-@scripts/system-packages openjdk-17-jre-headless=java
	@HEADRACE_DEMO_KEEP=$(KEEP) $(BIN)/python examples/demo.py

demo-delivery:  ## kill workers under each delivery guarantee and count what is lost and repeated
	@scripts/setup
	@$(BIN)/python examples/delivery.py

test: env lint  ## everything that decides whether a change lands
	@scripts/system-packages kcat=kcat etcd-server=etcd nodejs=node npm=npm openjdk-17-jre-headless=java chromium=chromium
	@scripts/test

lint: env  ## style, types, layering
	@$(BIN)/ruff check src tests examples bench scripts
	@$(BIN)/ruff format --check -q src tests examples bench scripts
	@$(BIN)/mypy --no-error-summary
	@$(BIN)/mypy --no-error-summary --config-file tests/mypy.ini
	@$(BIN)/python scripts/house --limits
	@$(BIN)/lint-imports --no-cache >/dev/null || $(BIN)/lint-imports --no-cache

PURE = core wire records log cluster replication groups transactions queues

coverage: env  ## branches of the pure packages that their own tests take, against the number in tests/coverage.ini
	@$(BIN)/python -m coverage run --rcfile tests/coverage.ini -m pytest -q -p no:cacheprovider $(PURE:%=tests/unit/%) tests/property tests/scenario
	@$(BIN)/python -m coverage report --rcfile tests/coverage.ini

unit: env  ## only the quick tests
	@$(BIN)/python -m pytest -q --import-mode=importlib tests/unit tests/property tests/scenario tests/contract

sim: env  ## whole clusters on virtual time with injected faults: make sim SEEDS=1000
	@$(BIN)/python scripts/sim --seeds $(SEEDS)

sim-queues: env  ## the same for queues and their SQS clients: make sim-queues SEEDS=1000
	@$(BIN)/python scripts/sim --queues --seeds $(SEEDS)

torture: env  ## real brokers and etcd: kills, pauses, cut links, outages: make torture MINUTES=10
	@scripts/system-packages etcd-server=etcd
	@$(BIN)/python scripts/torture --minutes $(MINUTES)

fuzz: env  ## mutated frames and batches: make fuzz FRAMES=1000000
	@HEADRACE_FUZZ_FRAMES=$(FRAMES) $(BIN)/python -m pytest -q -s tests/fuzz

console: env  ## build the web console anew into the package (needs Node and npm; users need neither)
	@$(BIN)/python scripts/generate-docs
	@cd console && npm ci --ignore-scripts --no-audit --no-fund --silent && npm run --silent types && npm run --silent build

console-test: env  ## the web console: types, a build that must give the committed bytes, and every page in a real browser
	@scripts/system-packages nodejs=node npm=npm chromium=chromium
	@cd console && npm ci --ignore-scripts --no-audit --no-fund --silent && npm run --silent types
	@HEADRACE_CONSOLE=1 $(BIN)/python -m pytest -q --import-mode=importlib tests/unit/http/test_console.py tests/client/test_console.py tests/client/test_console_pages.py tests/client/test_console_login.py tests/client/test_console_acts.py tests/client/test_console_trouble.py

console-pictures: env  ## every page of the console, empty, small, big and broken, dark and light, at three widths, to look at (in .pictures)
	@cd console && npm ci --ignore-scripts --no-audit --no-fund --silent
	@$(BIN)/python scripts/console-pictures

rest-fuzz: EXAMPLES ?= 200
rest-fuzz: env  ## schemathesis over the OpenAPI document: make rest-fuzz EXAMPLES=200
	@$(BIN)/python tests/rest/rest_fuzz.py --examples $(EXAMPLES)

torture-single: env  ## kill -9 one broker over and over in mid-load: make torture-single KILLS=200
	@HEADRACE_KILLS=$(KILLS) $(BIN)/python -m pytest -q -s tests/client/test_kill.py -k kill_9

eos: env  ## kill consume-transform-produce loops and their broker: make eos KILLS=200
	@$(BIN)/python scripts/exactly-once-torture --kills $(KILLS)

pipeline-kills: KILLS = 100
pipeline-kills: KIND = all
pipeline-kills: env  ## kill Spark pipelines of a kind, and what they stand on, and count every row: make pipeline-kills KILLS=100 KIND=table|mirror|transform|aggregate|replay|all
	@scripts/system-packages openjdk-17-jre-headless=java
	@$(BIN)/python scripts/pipeline-kills --kills $(KILLS) --kind $(KIND) --seed $(SEED)

compaction: env  ## a thousand keys updated over and over while they are read: make compaction UPDATES=1000000
	@HEADRACE_UPDATES=$(UPDATES) $(BIN)/python -m pytest -q -s tests/client/test_compaction.py -k thousand

views: env  ## a view of one percent of a million records, with every client and Spark: make views RECORDS=1000000
	@HEADRACE_VIEW_RECORDS=$(RECORDS) $(BIN)/python -m pytest -q tests/client/test_views.py tests/spark/test_views.py

eos-sim: env  ## schedules of late and repeated requests against transactions: make eos-sim SCHEDULES=20000
	@$(BIN)/python scripts/late-request-schedules --schedules $(SCHEDULES)

mutants: env  ## change the source in small places and see whether a test notices: make mutants SAMPLE=200 SEED=7
	@[ -d .mutants/map ] || $(BIN)/python scripts/mutants --map
	@$(BIN)/python scripts/mutants --sample $(SAMPLE) --seed $(SEED) --doors

interop: env  ## peers from Maven Central, npm, the Go proxy and environments of their own: Java clients of several years, Kafka's tools, Streams and Connect, a Java registry client, AWS SDKs, Airflow, Spark's own connector
	@scripts/system-packages maven=mvn openjdk-17-jdk-headless=javac golang-go=go npm php-cli=php php-symfony-http-client=/usr/share/php/Symfony/Component/HttpClient/autoload.php \
		php-async-aws-sqs=/usr/share/php/AsyncAws/Sqs/autoload.php ruby=ruby ruby-aws-sdk=aws-rb
	@HEADRACE_INTEROP=1 $(BIN)/python -m pytest -q tests/interop

stopwatch: env  ## a new user's first steps from nothing, timed: first message, worker, test, cluster by hand, schema, upgrade
	@scripts/system-packages etcd-server=etcd
	@$(BIN)/python scripts/stopwatch

spark-versions: env  ## every minor version of Spark from 4.0 on that PyPI has: make spark-versions [VERSIONS="4.0.5 4.1.4"]
	@scripts/system-packages openjdk-17-jre-headless=java
	@$(BIN)/python scripts/spark-versions $(VERSIONS)

python-versions: env  ## the wheel on every Python from 3.11 on that is here: a broker with its doors, and unit tests: make python-versions [VERSIONS="3.13 --tests none"]
	@scripts/python-versions $(VERSIONS)

bench: env  ## what one broker costs: rates, latency, CPU per GB and per request
	@$(BIN)/python bench/single_node.py

SECURITY_TESTS = tests/unit/security tests/unit/house/test_rights.py tests/unit/core/test_peer_proof.py tests/contract/test_coordinator_etcd.py \
  tests/client/test_logins.py tests/client/test_tls.py tests/client/test_access_keys.py tests/client/test_security_rules.py tests/client/test_oauth.py \
  tests/client/test_audit.py tests/client/test_open_doors.py tests/client/test_browsers.py tests/client/test_chromium.py tests/client/test_bounds.py \
  tests/client/test_connection_limits.py tests/client/test_securing.py tests/client/test_names_of_others.py tests/client/test_secured_under_load.py tests/client/test_security_doors.py tests/client/test_narrower_tokens.py \
  tests/client/test_standing_orders.py tests/client/test_delegation_tokens.py tests/client/test_tenants.py tests/client/test_user_quotas.py tests/client/test_certified_users.py tests/client/test_withdrawn.py \
  tests/client/test_login_limits.py tests/client/test_rights_matrix.py tests/client/test_before_login.py tests/client/test_resealing.py tests/client/test_last_use.py tests/client/test_old_rights.py tests/client/test_canaries.py tests/client/test_sealed_secrets.py tests/spark/test_secured.py

security: EXAMPLES ?= 20000
security: env  ## everything about security, with many more examples than make test has, and sslyze against a secured broker: make security EXAMPLES=20000
	@HEADRACE_SECURITY_EXAMPLES=$(EXAMPLES) HEADRACE_SECURITY=1 $(BIN)/python -m pytest -q --import-mode=importlib --timeout 7200 $(SECURITY_TESTS)
	@$(BIN)/python scripts/security-switch-offs

bench-guard: env  ## CPU per unit against the baseline of this kind of machine: make bench-guard [RECORD=--record]
	@$(BIN)/python bench/guard.py $(RECORD)

bench-peers: env  ## beside Kafka, NATS, Redis, RabbitMQ, ElasticMQ and moto in one run: make bench-peers [PEERS="--short"] [PEERS="--only consume-1k,sqs"]
	@scripts/system-packages maven=mvn openjdk-17-jre-headless=java golang-go=go etcd-server=etcd || echo "what needs them is left out, and the table says so" >&2
	@$(BIN)/python bench/peers $(PEERS)

# They put something of their own in the place of what is compiled, or change it (decision 0073).
UNCOMPILED = tests/unit/broker/test_parking.py tests/unit/broker/test_damaged_reads.py tests/unit/broker/views/test_view_fetch.py \
  tests/unit/kafka/test_fetch_by_id.py
COMPILED_TESTS ?= tests/unit/core tests/unit/wire tests/unit/records tests/unit/log tests/unit/replication tests/unit/queues tests/unit/broker tests/unit/kafka tests/sim

.PHONY: compiled
compiled: env  ## compile the hot modules (needs a C compiler) in .compiled, and run unit tests and simulations on that
	@$(BIN)/python -c "import setuptools" 2>/dev/null || $(BIN)/uv pip install -q setuptools
	@rm -rf .compiled && mkdir .compiled && cp -r src .compiled/src
	@$(BIN)/python scripts/compile $(CURDIR)/.compiled > .compiled/output 2>&1 || { tail -20 .compiled/output; exit 1; }
	@PYTHONPATH=$(CURDIR)/.compiled/src PYTHONPYCACHEPREFIX=$(CURDIR)/.compiled/pycache $(BIN)/headrace --version | grep compiled
	@PYTHONPATH=$(CURDIR)/.compiled/src PYTHONPYCACHEPREFIX=$(CURDIR)/.compiled/pycache $(BIN)/python -m pytest -q -n 2 $(COMPILED_TESTS) \
	  $(addprefix --ignore=,$(UNCOMPILED)) -k "not a_broken_rule_is_noticed"

limits: env  ## the largest legal request of each API: how long it keeps the loop (50 ms is the rule)
	@$(BIN)/python bench/largest_requests.py

packages: env  ## wheel and sdist, and what is deployed held against the schemas of compose, Kubernetes, GitHub and (with Go) Helm
	@rm -rf dist && $(BIN)/uv build -q --out-dir dist . && ls dist
	@$(BIN)/uv tool run -q check-jsonschema --builtin-schema vendor.compose-spec deploy/compose.yaml deploy/compose-cluster.yaml
	@$(BIN)/uv tool run -q check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
	@$(BIN)/uv tool run -q --from kubernetes-validate kubernetes-validate --strict --quiet deploy/kubernetes.yaml deploy/kubernetes-secure.yaml
	@scripts/helm-check

lock: env  ## write requirements.lock anew from pyproject.toml, with the newest versions and their hashes
	@$(BIN)/uv pip compile -q --upgrade --universal --generate-hashes --python-version 3.11 --no-header --custom-compile-command "make lock" \
	  --group dev --extra spark --extra avro --extra tables --extra oidc --extra otel -o requirements.lock pyproject.toml

audit: env  ## ask PyPI's advisories about everything in requirements.lock
	@$(BIN)/uv tool run -q pip-audit --strict --require-hashes --disable-pip -r requirements.lock

site: env  ## the manual as a site in .site, to be read offline; a link that leads nowhere is an error
	@$(BIN)/python scripts/generate-docs
	@$(BIN)/uv tool run -q zensical==0.0.73 build --strict -f mkdocs.yml && echo "open .site/index.html"

docs: env  ## write docs/cli.md, config.md, errors.md, metrics.md and openapi.json anew, from the code
	@$(BIN)/python scripts/generate-docs

clean:
	rm -rf .venv .pycache .compiled .mutants .mypy_cache .ruff_cache .pytest_cache .demo .interop .peers
