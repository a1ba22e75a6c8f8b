# What there is to do, in the order in which a newcomer needs it. Nothing but Go,
# gcc (for the race detector) and make is needed; `make wasm` builds the plugins in
# other languages where their compilers are found.

GO ?= go
BENCH ?=
SEED ?= 1
FUZZTIME ?= 20s

# The modules beside the product's own, and where plugins are.
WASM := examples/wasm-probes

.DEFAULT_GOAL := help

.PHONY: help
help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' Makefile

.PHONY: run
run: build plugins ## build everything and run config.hcl
	@exec ./bin/sonde run config.hcl

.PHONY: build
build: ## build bin/sonde and bin/demo
	$(GO) build -o bin/sonde ./cmd/engine
	$(GO) build -o bin/demo ./examples/demo

.PHONY: plugins
plugins: # those that config.hcl names
	@GO=$(GO) $(WASM)/build.sh grpc heartbeat

.PHONY: wasm
wasm: ## build the example plugins, in each language whose compiler is found
	@GO=$(GO) $(WASM)/build.sh

.PHONY: test
# The cache of test results does not know which files ./tests reads.
test: lint ## run everything that must pass, with the race detector
	$(GO) test -race $$($(GO) list ./... | grep -v '/tests$$')
	$(GO) test -count=1 ./tests
	cd guest && $(GO) test -race ./...
	cd $(WASM) && $(GO) test -race ./...
	@echo "all tests passed"

.PHONY: lint
lint: plugins ## check the layout, and look for common mistakes
	@unformatted=$$(gofmt -l .); if [ -n "$$unformatted" ]; then echo "gofmt -w is needed for:"; echo "$$unformatted"; exit 1; fi
	$(GO) vet ./...
	cd guest && $(GO) vet ./...
	cd $(WASM) && $(GO) vet ./...
	$(GO) tool staticcheck ./...
	@$(GO) run ./cmd/engine fmt --check config.hcl
	@$(GO) run ./cmd/engine validate config.hcl

.PHONY: oracle
# Without a package named go test shows the sums of what was compared.
oracle: ## compare with the kubelet's own prober, some minutes (SEED=n: other scripts)
	cd tests/oracle && $(GO) vet ./... && $(GO) test -short -count=1 -parallel 8 -timeout 20m -seed $(SEED)
	cd tests/oracle && $(GO) test ./pods

.PHONY: oracle-long
oracle-long: ## the same for an hour, with other scripts each time
	cd tests/oracle && $(GO) test -count=1 -parallel 8 -timeout 2h -lasting 50m -seed $$(date +%s)

.PHONY: bench
# In a network of its own, where that may be had, others' connections do not count.
bench: gobench ## run the Go benchmarks, and measure beside HAProxy and the kubelet
	$(GO) build -o bin/bench ./tests/bench
	-cd tests/oracle && $(GO) build -o ../../bin/benchprober ./benchprober
	@alone=; if unshare -rn ip link set lo up 2>/dev/null; then alone="unshare -rn"; fi; \
	$$alone sh -c 'ip link set lo up 2>/dev/null; exec ./bin/bench -kubelet ./bin/benchprober $(BENCH)'

.PHONY: gobench
gobench: ## run the Go benchmarks, as benchstat reads them
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
clean: ## remove what make has built
	rm -rf bin $(WASM)/*/*.wasm
