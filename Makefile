# Every target has a sentence after "##"; "make help" prints them.
GO          ?= go
GOFMT       := $(shell $(GO) env GOROOT)/bin/gofmt
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
GOVULNCHECK := golang.org/x/vuln/cmd/govulncheck@v1.8.0
DEADCODE    := golang.org/x/tools/cmd/deadcode@v0.52.0
FUZZTIME    ?= 10s
CONFIG      ?= examples/canary
BENCHFLAGS  ?=
REPORT      ?= docs/conformance/gateway-api-v1.6.3.yaml
SOAKFLAGS   ?=
TESTFLAGS   ?=

# One set of flags for all commands, so that what one of them compiled, or tested, in this clone or another one, is there for the next.
export GOFLAGS     := -trimpath $(filter-out -trimpath,$(GOFLAGS))
export CGO_ENABLED := 0

.DEFAULT_GOAL := help
.PHONY: help run demo build test test-apiserver test-chart test-grpc test-h2 test-wire test-overload lint fmt generate fuzz bench bench-latency bench-mirror soak setup
.PHONY: verify vulncheck reproducible sbom image test-tls test-release recording
.PHONY: bench-control bench-metrics bench-rollouts cluster-up cluster-image cluster-shell cluster-down kubectl setup-cluster conformance conformance-short test-cluster test-node test-pods test-chaos test-drivers test-rollouts

help: ## List the targets.
	@sed -n 's/^\([a-z0-9-]*\):.*## \(.*\)/\1\t\2/p' $(MAKEFILE_LIST) | awk -F '\t' '{ printf "%-14s %s\n", $$1, $$2 }'

run: build ## Serve CONFIG (a file or folder; default examples/canary) until interrupted.
	bin/weir run $(CONFIG)

demo: ## Run the demo: toy services, load, a gateway and a live table in one process.
	$(GO) run ./cmd/weir-demo

# Whatever the folder and the cache: the same commit and Go release give the same bytes. The version is what Go makes of the commit.
# Without the tracing pages of grpc, which nothing serves, the linker leaves out a quarter of the binary.
BUILD := CGO_ENABLED=0 $(GO) build -trimpath -buildvcs=auto -tags grpcnotrace

# Without what only debuggers need, a fifth of the binary ("go build ./cmd/weir" has it): stack traces, profiles and the names of functions stay.
build: ## Build bin/weir, a static binary, and bin/weir-proxy, the data plane of it alone.
	$(BUILD) -ldflags=-w -o bin/ ./cmd/weir ./cmd/weir-proxy

verify: ## Check that the modules are those that go.sum names, and that the go.mod files are tidy.
	@for mod in $$(git ls-files '*go.mod'); do \
		( cd $$(dirname $$mod) && echo "$$mod: $$($(GO) mod verify)" && $(GO) mod tidy -diff ) || exit 1; \
	done

vulncheck: ## Look the modules up in Go's vulnerability database, which must be within reach.
	$(GO) run $(GOVULNCHECK) ./...

reproducible: ## Build the last commit twice, in two folders with two caches, and compare the bytes.
	scripts/reproducible.sh

sbom: build ## List what bin/weir was built from, as CycloneDX, in bin/weir.cdx.json.
	cd deploy/release && $(GO) run . sbom -o ../../bin/weir.cdx.json ../../bin/weir

image: ## Make bin/weir-image.tar and bin/weir-proxy-image.tar, OCI images for amd64 and arm64, without a daemon or a registry.
	GOOS=linux GOARCH=amd64 $(BUILD) -ldflags="-s -w" -o bin/linux-amd64/ ./cmd/weir ./cmd/weir-proxy
	GOOS=linux GOARCH=arm64 $(BUILD) -ldflags="-s -w" -o bin/linux-arm64/ ./cmd/weir ./cmd/weir-proxy
	cd deploy/release && for i in weir weir-proxy; do \
		$(GO) run . image -o ../../bin/$$i-image.tar ../../bin/linux-amd64/$$i ../../bin/linux-arm64/$$i || exit 1; done
	@sha256sum bin/weir-image.tar bin/weir-proxy-image.tar

# The files of a release: see docs/install.md. URL, IMAGE and PROXY_IMAGE are where they and the images are going to be.
PLATFORMS   := darwin-amd64 darwin-arm64 linux-amd64 linux-arm64
LINUX        = $(filter linux-%,$(PLATFORMS))
URL         ?=
IMAGE       ?=
PROXY_IMAGE ?=
.PHONY: release
release: build ## Make a release of the last commit in bin/release: archives, checksums, SBOMs, images, Homebrew, krew, kustomize (docs/install.md).
	@[ -z "$$(git status --porcelain)" ] || { echo "release: commit first, as a release is made of a commit:" >&2; git status --short >&2; exit 1; }
	rm -rf bin/release && mkdir -p bin/release bin/completions
	for p in $(PLATFORMS); do \
		case $$p in linux-*) proxy=./cmd/weir-proxy;; *) proxy=;; esac; \
		GOOS=$${p%-*} GOARCH=$${p#*-} $(BUILD) -ldflags="-s -w" -o bin/$$p/ ./cmd/weir $$proxy || exit 1; \
	done
	bin/weir completion zsh >bin/completions/_weir
	for s in bash fish; do bin/weir completion $$s >bin/completions/weir.$$s || exit 1; done
	bin/weir completion powershell >bin/completions/weir.ps1
	$(if $(LINUX),cd deploy/release && for i in weir weir-proxy; do \
		$(GO) run . image -o ../../bin/release/$$i-image.tar $(LINUX:%=../../bin/%/$$i) || exit 1; done)
	cd deploy/release && $(GO) run . dist -o ../../bin/release -completions ../../bin/completions $(if $(URL),-url=$(URL)) $(if $(IMAGE),-image=$(IMAGE)) \
		$(if $(PROXY_IMAGE),-proxy-image=$(PROXY_IMAGE)) $(PLATFORMS:%=../../bin/%/weir) $(LINUX:%=../../bin/%/weir-proxy)
	@cat bin/release/SHA256SUMS

# The packages in which goroutines meet; race_test.go holds the list to the sources.
RACE := internal/budget internal/cli internal/control internal/controller internal/dataplane internal/demo internal/demo/mesh internal/exchange internal/fed internal/feed \
	internal/http2 internal/kube internal/kube/admission internal/kube/aggregated internal/kube/conversion internal/kube/infra internal/kube/inspect internal/kube/operate internal/kube/release internal/kube/replica internal/kube/trust internal/kube/webhook internal/metrics/embedded internal/mirror internal/peertest \
	internal/process internal/proxy internal/resource internal/rollout/local internal/routing internal/socket internal/tapping internal/task internal/telemetry internal/tracing/otlp internal/traffic internal/upstream
# Those that take longest begin first.
RACE_FIRST := internal/cli internal/proxy internal/kube/release internal/control internal/kube/replica
NOT_RACE = $(filter-out $(RACE:%=github.com/weirmesh/weir/%),$(shell $(GO) list ./...))
ALLOC := ./internal/exchange ./internal/http1 ./internal/http2 ./internal/mirror ./internal/proxy ./internal/routing ./internal/telemetry ./internal/upstream

test: setup ## Run the tests: short forms of all, where goroutines meet with the race detector, then with a real API server and (as root) on real pods.
	@scripts/times.sh
	CGO_ENABLED=1 $(GO) test -short -race -p 3 -timeout 10m $(patsubst %,./%,$(RACE_FIRST) $(filter-out $(RACE_FIRST),$(RACE)))
	$(GO) test -short -p 3 -timeout 10m $(NOT_RACE)
	$(GO) test -short -timeout 10m -run 'Allocat|HoldsNoBuffers' $(ALLOC)
	@scripts/once.sh $(MAKE) --no-print-directory test-chart
	@if [ "$$(id -u)" = 0 ]; then \
		$(MAKE) --no-print-directory setup-cluster && \
		scripts/once.sh $(MAKE) --no-print-directory test-apiserver TESTFLAGS=-short PODS=1 && \
		scripts/once.sh $(MAKE) --no-print-directory test-pods TESTFLAGS=-short; \
	else \
		scripts/once.sh $(MAKE) --no-print-directory test-apiserver TESTFLAGS=-short && \
		echo 'left out, as they need root: the tests on real pods ("make test-cluster")'; \
	fi

.PHONY: test-full
test-full: setup ## Run the same tests in full size, all with the race detector (an hour).
	CGO_ENABLED=1 $(GO) test -race -timeout 40m ./...
	$(GO) test -timeout 20m -run 'Allocat|HoldsNoBuffers' $(ALLOC)
	$(GO) test -timeout 20m ./test/soak
	@$(MAKE) --no-print-directory test-chart test-apiserver

.PHONY: test-all
test-all: ## Run everything that a release needs: all checks, builds, fuzz targets and tests, in full size (hours, as root).
	@for target in lint verify deadcode reproducible test-release fuzz test-full test-h2 test-grpc test-tracing test-faults test-memory test-tls test-wire \
			test-paths test-prometheus test-grafana test-topology test-overload soak test-cluster test-drivers conformance; do \
		echo "== make $$target" && $(MAKE) --no-print-directory $$target || exit 1; \
	done

# Those that take longest begin first, and most of it is waiting. With PODS, what the tests on real pods need is built while the others wait.
PODS ?=
APISERVER_FIRST := ./kube ./rollouts ./agreement
# These have no test with a short form.
APISERVER_FULL := scale
APISERVER_LEFT = node $(notdir $(APISERVER_FIRST)) $(if $(filter -short,$(TESTFLAGS)),$(APISERVER_FULL))
test-apiserver: ## Run the tests against a real API server, which is built once (about 5 minutes, test/cluster/README.md).
	@mkdir -p bin && cd test/cluster && $(GO) run . build >/dev/null
	$(if $(PODS),nice -n 5 scripts/conformance.sh build >bin/build.log 2>&1 & )cd test/cluster && $(GO) test -count=1 -p 3 -parallel 12 $(TESTFLAGS) \
		-timeout 20m $(APISERVER_FIRST) $(filter-out $(addprefix %/,$(APISERVER_LEFT)),$(shell cd test/cluster && $(GO) list ./...))$(if $(PODS),; code=$$?; wait; exit $$code)

test-chart: ## Lint the chart with Helm's own rules, render it, and hold deploy/manifests/install.yaml to it.
	cd deploy/release/manifests && $(GO) test -count=1 ./...

test-h2: ## Run h2spec (146 cases, strict) against weir five times, cleartext and TLS, and the floods of HTTP/2.
	H2SPEC_RUNS=5 $(GO) test -count=1 ./test/h2
	$(GO) test -count=1 -run Flood ./internal/proxy

test-grpc: ## Run grpc-go's interoperability cases through weir, split and mirrored, cleartext and TLS, three times.
	CGO_ENABLED=1 $(GO) test -race -count 3 -timeout 20m ./test/grpc

.PHONY: test-tracing
test-tracing: ## Send traces to a real OpenTelemetry Collector, which is built once (5 minutes).
	cd test/tracing && $(GO) vet ./... && $(GO) run $(STATICCHECK) ./... && $(GO) test -count=1 -timeout 10m ./...

.PHONY: test-faults
test-faults: setup ## Run Weir against slow clients (10,000), broken backends, full disks and too few descriptors, at full size.
	FAULTS=full $(GO) test -count 1 -timeout 30m -v ./test/faults

.PHONY: test-memory
test-memory: ## Attack a Weir of 64 MiB with what it would have to keep: 10,000 unfinished heads and more (two minutes).
	MEMORY=full $(GO) test -count=1 -v -timeout 10m ./test/memory

test-tls: ## Run testssl.sh against "weir run": nothing above low (six minutes, most of them waiting).
	@scripts/setup.sh testssl
	$(GO) test -timeout 20m -v ./test/tls -testssl -run Testssl

test-release: ## Test what "make release" makes, and the image, which runc runs without privileges (as root).
	@scripts/setup.sh runc ruby git
	cd deploy/release && $(GO) vet ./... && $(GO) run $(STATICCHECK) ./... && $(GO) test ./...

test-wire: setup ## Hold malformed and ambiguous HTTP/1.1 against weir and four other parsers: all of the corpus, in two minutes (docs/http1.md).
	$(GO) run ./test/wire

.PHONY: test-paths
test-paths: ## Ask all common servers that are installed how they read paths, and go around rules for them behind weir (docs/paths.md).
	PATHS=full $(GO) test -count 1 -timeout 20m -v ./test/paths

.PHONY: test-prometheus
test-prometheus: ## Have a Prometheus and the embedded store read the same proxies, and compare what they say; ask it all that boards and rules do (2 minutes).
	@scripts/setup.sh prometheus
	$(GO) test -count=1 -timeout 20m -v ./test/prometheus

.PHONY: test-grafana
test-grafana: ## Read the boards of deploy/grafana strictly by Grafana's own model of boards.
	cd test/grafana && $(GO) vet ./... && $(GO) run $(STATICCHECK) ./... && $(GO) test -count=1 -timeout 5m ./...

test-overload: ## Show that goodput holds when three times as much is asked as can be done (2 minutes, on a quiet machine).
	WEIR_OVERLOAD=full $(GO) test -count=1 -v -timeout 10m ./test/overload

.PHONY: test-topology
test-topology: ## Hold the drawings of 1,000 random graphs to those of graph-easy (3 minutes).
	@scripts/setup.sh graph-easy
	TOPOLOGY=full $(GO) test -count=1 -v -timeout 20m -run GraphEasy ./internal/topology

# Modules that share their libraries are looked through at once; the others' own targets do it.
LINTED := ./... ./deploy/release/manifests/... ./test/cluster/... ./test/conformance/...
lint: ## Check formatting, go vet, staticcheck, and that generated files are up to date.
	@unformatted=$$($(GOFMT) -l .); \
	if [ -n "$$unformatted" ]; then echo "not gofmt'ed (run make fmt):"; echo "$$unformatted"; exit 1; fi
	GOWORK=$(CURDIR)/lint.work $(GO) vet $(LINTED)
	GOWORK=$(CURDIR)/lint.work $(GO) run $(STATICCHECK) $(LINTED)
	cd deploy/release/manifests && $(GO) run . -check
	$(GO) run ./internal/cli/gendocs -check docs

.PHONY: deadcode
deadcode: ## Check that something reaches every function, and not tests alone.
	GO="$(GO)" scripts/deadcode.sh $(DEADCODE)

fmt: ## Format the Go sources.
	$(GOFMT) -w .

generate: ## Rewrite what is generated: in docs/ (cli.md, codes.md, tables of kinds), in deploy/ (the chart's rules, manifests/install.yaml, boards, prometheusrule.yaml).
	$(GO) generate ./...
	cd deploy/release/manifests && $(GO) run .

fuzz: ## Run every fuzz target for FUZZTIME (default 10s) each.
	scripts/fuzz.sh $(FUZZTIME)

soak: build ## Send a million checked requests through 100 reloads and rolling drains; none may fail (10 minutes, docs/draining.md).
	$(GO) run ./test/soak -weir bin/weir $(SOAKFLAGS)

bench: setup ## Compare Weir with nginx, HAProxy and httputil.ReverseProxy, one core each (docs/performance.md).
	$(GO) run ./test/bench $(BENCHFLAGS)

recording: ## Record the demo as docs/demo.svg, the picture of the README (needs the program "script" of util-linux).
	$(GO) build -o bin/ ./cmd/weir-demo
	$(GO) run ./docs/recording

bench-latency: ## Compare latencies with nginx's and HAProxy's at fixed rates, in rounds that nothing disturbed (docs/performance.md; half an hour).
	$(GO) run ./test/bench -latency $(BENCHFLAGS)

bench-mirror: ## Show that a broken mirror backend does not touch the primary (docs/performance.md).
	$(GO) run ./test/bench -mirror -rounds 15 -duration 2s $(BENCHFLAGS)

bench-control: build ## Measure the control plane over 10,000 routes of a real API server, and fail if a goal is missed (docs/performance.md).
	@cd test/cluster && $(GO) run . bench-control -weir ../../bin/weir $(BENCHFLAGS)

.PHONY: bench-mesh
bench-mesh: build ## Measure the control plane of a mesh, with 10,000 Services, 20,000 pods and 1,000 simulated sidecars, and fail if a goal is missed (docs/performance.md).
	@cd test/cluster && $(GO) run . bench-mesh -weir ../../bin/weir $(BENCHFLAGS)

bench-metrics: ## Measure Traffic Metrics of 5,000 pods and 20,000 edges: reading proxies, the store, lists and edges; it fails if a goal is missed (docs/traffic-api.md).
	GOALS=1 $(GO) test -run - -bench 'ReadFleet|Ask|Handler|NewIndex' ./internal/metrics/...
	$(GO) test -count=1 -v -run Memory ./internal/metrics/embedded

bench-rollouts: ## Have 1,000 Rollouts progress at once on a real API server, and fail if a goal is missed (docs/performance.md).
	cd test/cluster && GOALS=1 $(GO) test -run - -bench ManyRollouts -benchtime 1x -timeout 60m -v ./rollouts

setup: ## Install what the tests need and the machine lacks (Debian, as root): a C compiler for -race, curl, git, nginx, HAProxy, slowhttptest, logrotate, Node.js with Express, a JDK with Tomcat.
	@scripts/setup.sh gcc curl git nginx haproxy slowhttptest logrotate node javac /usr/share/nodejs/express /usr/share/tomcat10/lib

cluster-up: setup-cluster ## Boot a real one-node Kubernetes on this machine (test/cluster/README.md; built once, about 8 minutes).
	@cd test/cluster && $(GO) run . up

cluster-down: ## Remove it.
	@cd test/cluster && $(GO) run . down

cluster-image: ## Build the images weir:dev and weir-proxy:dev of this tree and put them into that cluster, also in place of older ones.
	@cd test/cluster && $(GO) run . import weir

cluster-shell: build ## A shell in its network, with kubectl and the weir of this tree (CMD="..." runs that instead).
	@cd test/cluster && $(GO) run . exec -- bash -c 'cd ../.. && PATH="$$PWD/bin:$$PATH" exec $(if $(CMD),bash -c "$$1",bash)' - '$(CMD)'

kubectl: ## Run kubectl against it: make kubectl ARGS="get pods -A".
	@cd test/cluster && $(GO) run . exec -- kubectl $(ARGS)

test-cluster: test-node test-pods ## Run the tests on real pods: a node's own, end to end, and a selection of the conformance suite (root, an hour; 2 minutes, without that selection, with TESTFLAGS=-short).

test-node: setup-cluster
	cd test/cluster && $(GO) test -count=1 -timeout 20m ./node

test-pods: setup-cluster
	@E2EFLAGS=$(filter -test.short,$(TESTFLAGS:-short=-test.short)) scripts/conformance.sh $(if $(filter -short,$(TESTFLAGS)),e2e-only,e2e -test.short)

test-rollouts: setup-cluster ## Replace backends, proxies and controllers, and end releases in each way, under load, 20 times each: no request may fail (root, 25 minutes, docs/draining.md).
	@E2EALONE='ReplacingProxies|ReplacingTheOnlyProxy' E2EFLAGS='-test.run=Replacing|ReleasesFailNoRequest' scripts/conformance.sh e2e-only

test-drivers: setup-cluster ## Have Flagger and Argo Rollouts, as they are released, carry releases of pods in the mesh out by TrafficSplits (root, 10 minutes; twice that when it first builds them).
	@E2EIMAGES='flagger argo-rollouts' E2EALONE= E2EFLAGS='-test.run=Flaggers|ArgoRollouts' scripts/conformance.sh e2e-only

test-chaos: setup-cluster ## Have sidecars, pods, the authority, DNS and the API server fail under calls of all kinds between meshed pods: nothing may fail but what docs/mesh.md names (root, 10 minutes).
	@E2EALONE='ChaosOnMeshedPods(WithoutController|OverADrainedNode)$$' E2EFLAGS='-test.run=ChaosOnMeshedPods' scripts/conformance.sh e2e-only

conformance: setup-cluster ## Run the Gateway API's conformance suite on real pods, or RUN=TestName of it (docs/conformance).
	@scripts/conformance.sh $(if $(RUN),-run-test=$(RUN),-report-output=$(abspath $(REPORT)))

conformance-short: setup-cluster ## Run a selection of it, with all tests of mirrors and weights.
	@scripts/conformance.sh -test.short

setup-cluster:
	@scripts/setup.sh containerd runc nft iptables conntrack ip /usr/lib/cni/bridge
