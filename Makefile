# The targets, in the order in which a newcomer needs them. `make run` and `make test` need
# Go, gcc and make only; `make wasm` builds the plugins in other languages whose compilers
# are installed; targets that name root also need what .ci/run installs.

GO ?= go
BENCH ?=
SEED ?= 1
TRANSITIONS ?= 20000
RUNS ?= 1000
TARGETS ?= 100000
PERIOD ?= 20s
FUZZTIME ?= 20s
YEARS ?= 0
REQUESTS ?= 25000
RATE ?= 500
TIME ?= 8h
ORACLE_TIME ?= 50m
TIER ?= test

# The folder of the example plugins.
WASM := examples/wasm-probes

# The plugin that runs scripts, which bin/sonde embeds, and what it is built from.
STARLARK := cmd/engine/internal/embedded/module/starlark.wasm.gz
STARLARK_SOURCES := $(filter-out %_test.go,$(wildcard guest/*.go guest/starlark/*.go)) $(wildcard guest/go.mod guest/starlark/go.*)

# The plugin of grpc blocks, which bin/sonde embeds, and what it is built from.
GRPC := cmd/engine/internal/embedded/module/grpc.wasm.gz
GRPC_SOURCES := $(filter-out %_test.go,$(wildcard guest/*.go $(WASM)/grpc/*.go)) $(wildcard guest/go.mod $(WASM)/go.*)

.DEFAULT_GOAL := help

# What runs the steps of a tier. It gets the signals that make gets, which `go run` would not pass on.
SUITE = $(GO) build -o bin/suite ./tests/suite && PATH="$$($(GO) env GOROOT)/bin:$$PATH" exec bin/suite

# The tests of a target are those of a tier: see tests/tier.
browser caddy etcd fleet oracle: export SONDE_TIER = ci
fleet-scale fleet-long gateways faults gray reloads years oracle-long: export SONDE_TIER = long

.PHONY: help
help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' Makefile

.PHONY: run
# Without the plugin that runs scripts, which config.hcl does not need.
run: ## build what config.hcl needs, and run it
	@echo "building the engine, a demo service and two plugins: only the first time takes a minute or two"
	@$(MAKE) --no-print-directory $(GRPC) programs plugins
	@exec ./bin/sonde run config.hcl

.PHONY: build
build: $(STARLARK) $(GRPC) ## build bin/sonde, which runs scripts too, and bin/demo
	@$(MAKE) --no-print-directory programs

.PHONY: programs
programs: # with the plugins that are built in as far as they have been built
	$(GO) build -o bin/sonde ./cmd/engine
	$(GO) build -o bin/demo ./examples/demo

$(STARLARK): $(STARLARK_SOURCES)
	@mkdir -p bin
	cd guest/starlark && $(GO) run . -o ../../bin/starlark.wasm
	gzip -9nc bin/starlark.wasm >$@

$(GRPC): $(GRPC_SOURCES)
	@GO=$(GO) $(WASM)/build.sh grpc
	gzip -9nc $(WASM)/grpc/grpc.wasm >$@

.PHONY: embedded
embedded: $(STARLARK) $(GRPC) # what dist/release.sh embeds

.PHONY: sonde-xds
sonde-xds: ## build bin/sonde-xds, which serves groups to Envoy and to clients of gRPC
	$(GO) build -C gateway/xds -o ../../bin/sonde-xds ./cmd/sonde-xds

.PHONY: sonde-fleet
sonde-fleet: $(STARLARK) $(GRPC) ## build bin/sonde-fleet, whose engines share targets over etcd
	$(GO) build -C cmd/engine/fleet -o ../../../bin/sonde-fleet .

.PHONY: caddy-build
caddy-build: ## build bin/caddy: Caddy with the module for Sonde
	$(GO) build -C gateway/caddy -o ../../bin/caddy ./cmd/caddy

.PHONY: release
release: ## build programs, packages, image and plugins of VERSION into bin/release, for this machine (PLATFORMS=all: for all)
	@GO=$(GO) VERSION=$(VERSION) dist/release.sh $(PLATFORMS)

.PHONY: plugins
plugins: # the ones that config.hcl loads
	@GO=$(GO) $(WASM)/build.sh heartbeat

.PHONY: wasm
wasm: ## build the example plugins, in each language whose compiler is installed
	@GO=$(GO) $(WASM)/build.sh

.PHONY: check
check: $(STARLARK) $(GRPC) ## check what has changed since the last commit (SINCE=revision), a minute
	@$(SUITE) check

.PHONY: test
test: build plugins ## run the tests, minutes (TIER=ci: and those that need servers, root and the race detector)
	@$(SUITE) $(TIER)

.PHONY: long
long: build wasm ## run all that takes hours, each night (root), and sum up
	@$(SUITE) long

.PHONY: lint
lint: build plugins ## check formatting, go vet, staticcheck, and config.hcl
	@$(SUITE) lint

.PHONY: explore
explore: ## compare every state that a probe can reach with the kubelet's worker, a minute
	$(GO) test -count=1 -v -run TestEveryReachableState ./engine/verdict -all

.PHONY: docs
docs: ## write docs/states.md, docs/configuration and docs/openapi.yaml from the code
	$(GO) test -count=1 -run TestDocumentShowsTheStates ./engine/verdict -rewrite
	$(GO) test -count=1 -run TestPagesAreThoseOfTheSchemas ./cmd/engine/internal/reference -rewrite
	$(GO) test -count=1 -run TestTheSchemasOfTheAPIAreThoseOfItsTypes ./tests -rewrite

.PHONY: browser
browser: ## test the status page in Chromium (SHOTS=dir takes screenshots)
	cd tests/browser && $(GO) vet ./... && $(GO) test -count=1 -screenshots "$(SHOTS)" ./...

.PHONY: oracle
# Without a package argument, go test prints the summary of what was compared.
oracle: ## compare with the kubelet's prober, a few minutes (SEED=n for other scripts)
	cd tests/oracle && $(GO) vet ./... && $(GO) test -short -count=1 -parallel 8 -timeout 20m -seed $(SEED)
	cd tests/oracle && $(GO) test ./pods ./times

.PHONY: caddy
# Without -race, with which Caddy takes minutes to build.
caddy: ## test the module for Caddy, and build Caddy for that
	cd gateway/caddy && $(GO) vet ./... && $(GO) test -count=1 ./...

.PHONY: etcd
etcd: ## test what fleets keep in etcd, with three nodes, a minute (TRANSITIONS=1000000 for the figures of docs/fleet.md, ten)
	cd fleet/etcd && $(GO) vet ./... && $(GO) test -race -count=1 ./...
	cd fleet/etcd && $(GO) test -count=1 -run TestADatabase -v -timeout 30m . -transitions $(TRANSITIONS)

.PHONY: fleet
fleet: ## test engines that share targets over a real etcd, two minutes (root)
	cd cmd/engine/fleet && $(GO) vet ./... && $(GO) test -count=1 ./...
	cd tests/fleet && $(GO) vet ./... && $(GO) test -count=1 ./...

.PHONY: fleet-scale
# The tests build the program in a network of their own: here its modules are downloaded.
fleet-scale: sonde-fleet ## kill, add and stop engines that share TARGETS, each probed once in PERIOD, and print what they need, 20 periods (root)
	cd tests/fleet && $(GO) test -count=1 -v -timeout 12h -run ManyTargets . -targets $(TARGETS) -period $(PERIOD) -steady 60s -quiet

.PHONY: fleet-long
fleet-long: sonde-fleet ## the same with RUNS of random faults, and until each missing safeguard shows, an hour (root)
	cd tests/fleet && $(GO) test -count=1 -v -timeout 12h -run 'NoStale|WithoutEtcd|Scenes|FromSomeHosts' . -runs $(RUNS) -fleets 12 -seed $$(date +%s)
	cd tests/fleet && $(GO) test -count=1 -v -timeout 12h -run WithoutASafeguard . -planted -fleets 6 -seed $$(date +%s)

.PHONY: gateways
gateways: ## take backends away behind real gateways, and print how fast each follows, 35 minutes (root)
	cd tests/gateways && $(GO) test -count=1 -v -timeout 12h . -requests $(REQUESTS) -rate $(RATE)

.PHONY: oracle-long
oracle-long: ## compare with the kubelet's prober for ORACLE_TIME, with new scripts each time
	cd tests/oracle && $(GO) test -count=1 -parallel 8 -timeout 0 -lasting $(ORACLE_TIME) -seed $$(date +%s)
	cd tests/oracle && $(GO) test -count=1 ./pods ./times

.PHONY: faults
faults: ## inject faults into a prober of 2,000 healthy targets, and count changed verdicts (root)
	$(GO) test -count=1 -v -timeout 30m ./tests/faults -targets 2000

.PHONY: gray
gray: ## play the partial failures of docs/gray.md, and print how soon each is named, three minutes (root)
	$(GO) test -count=1 -v -timeout 30m ./tests/gray

.PHONY: years
# The stories are new ones each time. Without YEARS they are played for TIME.
years: ## simulate engines for TIME, or for YEARS engine-years, and check that they keep the laws
	$(GO) test -count=1 -v -timeout 0 ./tests/years -planted . -first $$(date +%s) -lasting $(TIME) -years $(YEARS)

.PHONY: reloads
reloads: ## reload a configuration with a plugin 10,000 times, and measure what memory that leaves
	$(GO) test -count=1 -v -timeout 30m -run TestReloadsDoNotLeak ./cmd/engine/internal/daemon -reloads 10000

.PHONY: bench
# In a network namespace of its own, if permitted, so that no other connections count.
bench: gobench wasm $(STARLARK) ## run the Go benchmarks, and compare with HAProxy and the kubelet
	$(GO) build -o bin/bench ./tests/bench
	-cd tests/oracle && $(GO) build -o ../../bin/benchprober ./benchprober
	@alone=; if unshare -rn ip link set lo up 2>/dev/null; then alone="unshare -rn"; fi; \
	$$alone sh -c 'ip link set lo up 2>/dev/null; exec ./bin/bench -kubelet ./bin/benchprober $(BENCH)'

.PHONY: gobench
gobench: ## run the Go benchmarks, in the format of benchstat
	$(GO) test -run '^$$' -bench . -benchmem ./...

.PHONY: fuzz
fuzz: ## run each fuzz target for FUZZTIME
	@for package in $$($(GO) list ./...); do \
		for target in $$($(GO) test -list '^Fuzz' $$package | grep '^Fuzz'); do \
			echo "$$package $$target"; \
			$(GO) test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) $$package || exit 1; \
		done; \
	done

.PHONY: clean
clean: ## remove everything that make has built
	rm -rf bin $(WASM)/*/*.wasm $(STARLARK) $(GRPC)
