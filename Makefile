# Copyright The Lanyard Authors.
# SPDX-License-Identifier: Apache-2.0

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

GO       ?= go
FUZZTIME ?= 30s
# Recipes read the variables of the caller (VERSION, MINORS, E2E, ...) from the environment,
# where make puts them, as "$$VERSION". A value that make writes into a recipe would be
# run by the shell: the name of a Git tag may contain ";".
export FUZZTIME

# The image that "make image" builds. "make help" prints the lines with "#?".
#? IMAGE      name and tag of the image, with the registry for "make image-push"
IMAGE     ?= $(or $(TARGET),lanyard-webhook):0.1.0
#? TARGET     lanyard-webhook, which is the default, or lanyard, the image of the command line
TARGET    ?=
#? PLATFORMS  platforms of the image, such as linux/amd64,linux/arm64; by default this machine's
PLATFORMS ?=
#? ENGINE     docker, podman or buildah, or a path of one; by default the first one that is installed
ENGINE    ?=
export IMAGE TARGET PLATFORMS ENGINE

# Only the race detector needs C. -trimpath keeps local paths out of the binaries, and -s debug
# information, as in a release: images are a third smaller. All targets use the same flags, so
# they share the build cache. Go reads the version from Git, which refuses to read a checkout that
# belongs to another user.
VCS := $(shell git rev-parse HEAD >/dev/null 2>&1 || echo -buildvcs=false)
export CGO_ENABLED := 0
export GOFLAGS := -trimpath -ldflags=-s $(VCS) $(shell $(GO) env GOFLAGS 2>/dev/null)

# By default, a program with the race detector sleeps for a second before it exits.
export GORACE ?= atexit_sleep_ms=0

# The compiler, the linters and the API servers of the tests have memory enough, so they
# collect garbage less often than by default. Where a program is measured, it runs as it is
# shipped.
export GOGC := 400
AS_SHIPPED  := env -u GOGC

# All modules of this repository. The first is the product. The next hold tests
# and test programs, so that their dependencies stay out of the product. Those
# in hack/tools only pin the versions of programs.
CODE_MODULES := . test/charts test/docs test/e2e test/e2e/sdk/go test/policies test/support/certmanager
MODULES := $(CODE_MODULES) $(patsubst %/go.mod,%,$(wildcard hack/tools/*/go.mod))

.PHONY: help
help: ## List the targets.
	@awk 'BEGIN { FS = ":.*## " } /^[a-z0-9-]+:.*## / { printf "  %-18s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo; echo "Variables of image and image-push:"; sed -n 's/^#? /  /p' $(MAKEFILE_LIST)

.PHONY: build
build: go ## Build the static binaries bin/lanyard-webhook and bin/lanyard.
	$(GO) build -o bin/lanyard-webhook ./cmd/webhook
	$(GO) build -o bin/lanyard ./cmd/lanyard

# The platforms of a release. Each binary is static, so Go alone is enough.
RELEASE_PLATFORMS := linux/amd64 linux/arm64
PLUGIN_PLATFORMS  := linux/amd64 linux/arm64 darwin/amd64 darwin/arm64 windows/amd64 windows/arm64

.PHONY: platforms
platforms: ## Compile the binaries for all platforms of a release.
	@set -e; for platform in $(RELEASE_PLATFORMS); do \
		echo "go build lanyard-webhook for $$platform"; \
		GOOS=$${platform%/*} GOARCH=$${platform#*/} $(GO) build -o bin/lanyard-webhook-$${platform#*/} ./cmd/webhook; \
	done
	@set -e; for platform in $(PLUGIN_PLATFORMS); do \
		echo "go build lanyard for $$platform"; \
		GOOS=$${platform%/*} GOARCH=$${platform#*/} $(GO) build -o /dev/null ./cmd/lanyard; \
	done

.PHONY: controlplane
controlplane: go ## Build etcd and kube-apiserver into bin/controlplane (minutes the first time).
	hack/controlplane.sh

.PHONY: demo
demo: linux build controlplane ## Run the demo on a real kube-apiserver; KEEP=1 keeps it running.
	$(GO) build -o bin/demo ./test/demo
	@exec bin/demo

.PHONY: quickstart
quickstart: ## Show Lanyard on a kind cluster; needs Docker or Podman. MODE=policies: without a webhook. KIND_IMAGE overrides the node image.
	@hack/kind/quickstart.sh

.PHONY: quickstart-delete
quickstart-delete: ## Delete the cluster of "make quickstart".
	@hack/kind/quickstart.sh --delete

# The race detector watches the packages that serve many requests at a time. It makes them several
# times as slow. All other tests run in one goroutine, or start the program, which
# test/support/webhook builds with the race detector. The nightly workflow runs all tests with it.
RACE_PACKAGES := ./cmd/webhook/... ./internal/webhook/... ./pkg/... ./test/support/memnet
# In this package, these tests run without it: they decide about thousands of pods in one
# goroutine, or count memory, and the race detector uses memory of its own.
UNRACED       := ./internal/webhook/injector
UNRACED_TESTS := TestDecisionsStayWithinTheChargedMemory|FuzzMemory|FuzzRules|FuzzDifferential|TestAnnotationsAllocateNotMuchMoreThanTheirText|TestOneLongTextIsNotCopiedOften
# The suites that wait for a kube-apiserver start first. Other tests run while they wait.
FIRST := ./test/integration/cli ./test/integration/selfmanaged ./test/integration ./test/integration/callers ./test/integration/embed
# "make test" leaves these out: "make test-abuse" and "make test-release" run them.
OTHERS := ./test/integration/abuse ./test/release

# The integration tests run the binaries in bin/controlplane. Go's test cache
# does not know them, so -count=1 disables it. "make lint" runs go vet.
# Tests that call make must not look for the jobs of this make. The timeout ends a test that
# hangs: go test's 10 minutes are too few for a busy machine.
GO_TEST   := MAKEFLAGS= $(GO) test -vet=off -count=1 -timeout=1h
RACE_TEST := CGO_ENABLED=1 $(GO_TEST) -race -skip='^($(UNRACED_TESTS))$$'

.PHONY: test
test: linux c-compiler controlplane ## Run all tests, unit and integration (3 minutes; 10 the first time).
	@echo "compiling the tests (some minutes the first time); then there is a line for each package"
	+@$(MAKE) --no-print-directory -j2 test-plain test-race

.PHONY: test-plain
test-plain: controlplane ## Run the tests without the race detector (a part of "make test").
	@$(GO_TEST) $(FIRST) $(UNRACED) $$($(GO) list ./... | grep -vxF "$$($(GO) list $(RACE_PACKAGES) $(OTHERS))")

.PHONY: test-race
test-race: c-compiler ## Run the tests of the webhook's packages with the race detector (a part of "make test").
	@$(RACE_TEST) $(RACE_PACKAGES)

.PHONY: test-race-all
test-race-all: linux c-compiler controlplane ## Run all tests with the race detector, as each night.
	$(RACE_TEST) $(FIRST) $$($(GO) list ./... | grep -vxF "$$($(GO) list $(OTHERS))")

.PHONY: test-abuse
test-abuse: linux controlplane ## Attack the webhook under its memory limit, with nothing next to it (3 minutes).
	$(AS_SHIPPED) $(GO_TEST) ./test/integration/abuse

# Go's test cache does not know the files outside of the module.
.PHONY: charts
charts: controlplane ## Test the chart and deploy/, and that generated files are up to date.
	cd test/charts && $(GO_TEST) ./...

.PHONY: docs
docs: ## Test the documentation: links, generated pages and examples.
	cd test/docs && $(GO_TEST) ./...

# Packages of Node.js: VitePress builds the site, Playwright drives the browser.
site/node_modules: site/package.json site/package-lock.json
	@echo "npm ci in site (a minute the first time)"
	cd site && npm ci
	@touch $@

.PHONY: site
site: site/node_modules ## Build docs/ as a website into bin/site (SITE_VERSION, SITE_BASE).
	cd site && npm run build

.PHONY: site-test
site-test: site/node_modules ## Open the website in Chromium: links, search, colours, phones; screenshots in bin/site-shots.
	cd site && SITE_OUT=bin/site-test SITE_BASE=/lanyard/main/ npm run build
	rm -rf bin/site-shots
	cd site && node test.mjs ../bin/site-test /lanyard/main/ ../bin/site-shots

.PHONY: site-versions
site-versions: site/node_modules ## Build the website of this commit and of the newest releases into bin/site-versions, as it is published.
	cd site && node versions.mjs ../bin/site-versions

.PHONY: generate
generate: ## Write the generated files: deploy/, the README of the chart, and lists and tables of docs/.
	hack/generate.sh

.PHONY: test-versions
test-versions: ## Run the integration tests on several Kubernetes versions; MINORS=1.30 tests one.
	hack/test-versions.sh $$MINORS

.PHONY: test-cluster
test-cluster: controlplane ## Test the parts of "make e2e" (emulated clouds, SDK programs), and the cloud guides.
	@# Go's test cache does not know the pages and golden files that these tests read.
	cd test/e2e && $(GO_TEST) ./clouds/... ./guides
	cd test/e2e/sdk/go && $(GO_TEST) ./...
	cd test/support/certmanager && $(GO_TEST) ./...
	cd test/policies && $(GO_TEST) ./...

.PHONY: test-clouds
test-clouds: linux controlplane ## Get credentials from real accounts of AWS, Azure and Google; test/e2e/clouds/real/README.md has what it needs.
	cd test/e2e && exec $(GO) run ./clouds/real

.PHONY: e2e
e2e: ## Run the end-to-end suites on kind (Docker or Podman; or root on Debian); E2E=NAME runs one.
	hack/e2e.sh $$E2E

.PHONY: test-unit
test-unit: go ## Run the unit tests.
	$(GO) test ./cmd/... ./internal/... ./pkg/...

.PHONY: fuzz
fuzz: ## Run each fuzz target for FUZZTIME (default 30s).
	@set -e; targets=$$(grep -rHo --include='*_test.go' '^func Fuzz[A-Za-z0-9_]*' cmd internal pkg | sed 's/func //'); \
	[ -n "$$targets" ] || { echo "no fuzz target found" >&2; exit 1; }; \
	for target in $$targets; do \
		dir=$${target%/*}; name=$${target#*:}; \
		echo "$$name in $$dir for $$FUZZTIME"; \
		$(GO) test -run='^$$' -fuzz="^$$name\$$" -fuzztime="$$FUZZTIME" "./$$dir"; \
	done

.PHONY: update-golden
update-golden: ## Regenerate the golden files from the current output; read the diff.
	$(GO_TEST) ./internal/webhook/injector -update

.PHONY: vet
vet: ## Run go vet.
	@set -e; for module in $(CODE_MODULES); do echo "go vet in $$module"; (cd $$module && $(GO) vet ./...); done

.PHONY: lint
lint: bin/golangci-lint bin/actionlint ## Run golangci-lint, and actionlint for the workflows.
	bin/actionlint
	bin/golangci-lint config verify
	@set -e; for module in $(CODE_MODULES); do \
		echo "golangci-lint in $$module"; \
		(cd $$module && "$(CURDIR)/bin/golangci-lint" run --allow-serial-runners -c "$(CURDIR)/.golangci.yml" ./...); \
	done

# Each of these go.mod files has one tool.
TOOLS := bin/actionlint bin/benchstat bin/cyclonedx-gomod bin/golangci-lint bin/goreleaser bin/govulncheck bin/kind
$(TOOLS): bin/%: hack/tools/%/go.mod hack/tools/%/go.sum
	@echo "building $* (golangci-lint and goreleaser take minutes the first time)"
	cd hack/tools/$* && $(GO) build -o ../../../$@ tool
	@touch $@

.PHONY: vuln
vuln: bin/govulncheck ## Look for known vulnerabilities in all modules; needs vuln.go.dev, or GOVULNDB=file:///COPY.
	hack/vuln.sh $(MODULES)

.PHONY: sbom
sbom: build bin/cyclonedx-gomod ## Write the bill of materials of the binary, and so of the image, bin/lanyard-webhook.cdx.json.
	bin/cyclonedx-gomod bin -json -std -output bin/lanyard-webhook.cdx.json bin/lanyard-webhook

.PHONY: verify
verify: ## Check that the code is formatted and that each go.mod is tidy.
	@# Not in bin and site: what other programs write and remove there meanwhile would be an error.
	@set -e; files=$$("$$($(GO) env GOROOT)/bin/gofmt" -l $(filter-out bin/ site/,$(wildcard */))); if [ -n "$$files" ]; then echo "not formatted:" $$files >&2; exit 1; fi
	@set -e; for module in $(MODULES); do \
		echo "go mod tidy -diff in $$module"; \
		(cd $$module && $(GO) mod tidy -diff); \
	done

.PHONY: image
image: ## Build the container image IMAGE for PLATFORMS with ENGINE.
	@hack/image.sh

.PHONY: image-push
image-push: ## Build the container image IMAGE for PLATFORMS and push it to its registry.
	@hack/image.sh --push

# These publish nothing.
.PHONY: release-check
release-check: bin/goreleaser test-release ## Check the release's configuration and run test-release; VERSION=v1.2.3 also checks that all files have it.
	hack/release.sh check "$$VERSION"

.PHONY: test-release
test-release: go bin/cyclonedx-gomod bin/govulncheck ## Test the scripts of a release, make vuln, make sbom and go install (a part of "make release-check").
	$(GO_TEST) ./test/release

.PHONY: snapshot
snapshot: bin/goreleaser bin/cyclonedx-gomod ## Build the release's archives, checksums and bills of materials into bin/dist.
	hack/release.sh snapshot

.PHONY: release-notes
release-notes: ## Print the section of CHANGELOG.md for VERSION.
	@hack/release.sh notes "$$VERSION"

# The workflow "release" runs this in a job without rights. Another job publishes the
# result, with hack/release.sh and without make and Go.
.PHONY: release-build
release-build: bin/goreleaser bin/cyclonedx-gomod ## Build the image, the chart and the archives of VERSION into bin/release.
	hack/release.sh build "$$VERSION" $(RELEASE_PLATFORMS)

.PHONY: clean
clean: ## Remove all build output.
	rm -rf bin

# The load generator and the bare HTTPS server are separate programs, so that
# the measured webhook is the one that is shipped.
.PHONY: bench
bench: build controlplane ## Measure the cost, next to none (25 minutes); BENCHFLAGS=-quick gives rough figures.
	$(GO) build -o bin/baseline ./test/bench/baseline
	$(GO) build -o bin/bench ./test/bench
	@exec $(AS_SHIPPED) bin/bench $$BENCHFLAGS

# What these measure depends on the version of Go, so only CI compares it with limits.
.PHONY: bench-limits
bench-limits: go ## Compare the memory of a request and of a cached ServiceAccount with limits.
	$(AS_SHIPPED) $(GO_TEST) -run='^$$' -bench='^BenchmarkLimit' -benchtime=1x ./internal/webhook/injector ./internal/webhook/metadatacache

# Each of these fails with one line if the machine lacks something.
.PHONY: linux
linux:
	@[ "$$(uname)" = Linux ] || { echo "Lanyard's demo and tests need Linux, got $$(uname): use a container or a virtual machine" >&2; exit 1; }

.PHONY: go
go:
	@out=$$($(GO) list -m 2>&1) || { echo "Lanyard needs Go $$(sed -n 's/^go //p' go.mod) or later (https://go.dev/dl), got: $$out" >&2; exit 1; }

.PHONY: c-compiler
c-compiler: go
	@echo '#include <stdlib.h>' | $$(CGO_ENABLED=1 $(GO) env CC) -x c -fsyntax-only - 2>/dev/null || { \
		echo "The race detector needs a C compiler and the C library's headers: install gcc and" >&2; \
		echo "libc6-dev (Debian, Ubuntu) or glibc-devel (Fedora)." >&2; \
		exit 1; }
