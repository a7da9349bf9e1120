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

# Only the race detector needs C. -trimpath keeps local paths out of the
# binaries, and -s debug information, as in a release: images are a third smaller.
# All targets use the same flags, so they share the build cache.
export CGO_ENABLED := 0
export GOFLAGS := -trimpath -ldflags=-s $(shell $(GO) env GOFLAGS)

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
build: ## Build the static binaries bin/lanyard-webhook and bin/lanyard.
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
controlplane: ## Build etcd and kube-apiserver into bin/controlplane (minutes the first time).
	hack/controlplane.sh

.PHONY: demo
demo: build controlplane ## Run the demo on a real kube-apiserver; KEEP=1 keeps it running.
	$(GO) build -o bin/demo ./test/demo
	@exec bin/demo

.PHONY: quickstart
quickstart: ## Show Lanyard on a kind cluster; needs Docker or Podman. MODE=policies: without a webhook. KIND_IMAGE overrides the node image.
	@hack/kind/quickstart.sh

.PHONY: quickstart-delete
quickstart-delete: ## Delete the cluster of "make quickstart".
	@hack/kind/quickstart.sh --delete

# The race detector watches the packages of lanyard-webhook, which serve many requests at a
# time, and the suites that run goroutines of the product in the test's own process: the
# suite cli runs all commands. It makes compiling and running several times as slow. All
# other tests are one goroutine, or start the program, which test/support/webhook builds
# with the race detector. test/supplychain holds the list to the imports. The suites come
# first, because they wait while the other packages are compiled.
RACE_SUITES   := ./test/integration/cli ./test/integration/embed ./test/integration/selfmanaged ./test/support/peers
RACE_PACKAGES  = $(RACE_SUITES) ./examples/... ./pkg/... $$($(GO) list -deps ./cmd/webhook | grep '^github.com/lanyard-dev/lanyard/')
# Decisions about thousands of random pods are one goroutine, and the race detector allocates
# memory that two tests count. test-programs runs these tests.
PLAIN_TESTS := Fuzz.*|TestAnnotationsAllocateNotMuchMoreThanTheirText|TestOneLongTextIsNotCopiedOften
# These measure time, or send a review of 7 MiB within the webhook's own limit of two seconds,
# so nothing runs next to them.
ALONE       := ./test/integration/abuse
TIMED_TESTS := TestASlowClientDelaysNobody|TestAReviewIsTakenHoweverItIsWritten|TestWhatIsNoReviewIsRejectedWithItsMistake|TestRequestsWaitForTheirShareOfTheBudget

# The integration tests run the binaries in bin/controlplane. Go's test cache
# does not know them, so -count=1 disables it. "make lint" runs go vet.
# Tests that call make must not look for the jobs of this make.
GO_TEST := MAKEFLAGS= $(GO) test -vet=off -count=1 -timeout=20m

.PHONY: test
test: c-compiler controlplane bin/cyclonedx-gomod bin/govulncheck ## Run all tests, unit and integration.
	@# Side by side: half of the integration suites wait for a kube-apiserver.
	+@$(MAKE) --no-print-directory -j2 test-race test-programs
	+@$(MAKE) --no-print-directory test-alone

.PHONY: test-race
test-race: c-compiler controlplane ## Run the tests of the webhook's packages and of the commands with the race detector (a part of "make test").
	CGO_ENABLED=1 $(GO_TEST) -race -skip='^($(PLAIN_TESTS)|$(TIMED_TESTS))$$' $(RACE_PACKAGES)

.PHONY: test-programs
test-programs: c-compiler controlplane bin/cyclonedx-gomod bin/govulncheck ## Run all other tests (a part of "make test").
	@# First ./test/integration, which waits for a kube-apiserver.
	$(GO_TEST) ./test/integration $$($(GO) list $(RACE_PACKAGES) $(ALONE) | sed 's/^/-e /' | xargs sh -c '$(GO) list ./... | grep -v -x "$$@"' sh)
	$(GO_TEST) -run='^($(PLAIN_TESTS))$$' $$(grep -rlE --include='*_test.go' '^func ($(PLAIN_TESTS))\(' internal pkg | xargs dirname | sort -u | sed 's|^|./|')

.PHONY: test-alone
test-alone: c-compiler controlplane ## Run the tests that limit time and memory, with nothing next to them (a part of "make test").
	$(AS_SHIPPED) $(GO_TEST) -run='^TestCost$$' -v ./internal/webhook/injector
	$(AS_SHIPPED) CGO_ENABLED=1 $(GO_TEST) -race -run='^($(TIMED_TESTS))$$' ./internal/webhook/admission
	$(AS_SHIPPED) $(GO_TEST) $(ALONE)

# Go's test cache does not know the files outside of the module.
.PHONY: charts
charts: controlplane ## Test the chart and deploy/, and that generated files are up to date.
	cd test/charts && $(GO) test -count=1 ./...

.PHONY: docs
docs: ## Test the documentation: links, generated pages, examples and language.
	cd test/docs && $(GO) test -count=1 ./...

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
generate: ## Write the generated files: deploy/, the README of the chart, and docs/reference.
	hack/generate.sh

.PHONY: test-versions
test-versions: ## Run the integration tests on several Kubernetes versions; MINORS=1.30 tests one.
	hack/test-versions.sh $$MINORS

.PHONY: test-cluster
test-cluster: controlplane ## Test the parts of "make e2e" (emulated clouds, SDK programs), and the cloud guides.
	@# Go's test cache does not know the pages and golden files that these tests read.
	cd test/e2e && $(GO) test -count=1 ./clouds/... ./guides
	cd test/e2e/sdk/go && $(GO) test -count=1 ./...
	cd test/support/certmanager && $(GO) test -count=1 ./...
	cd test/policies && $(GO) test -count=1 ./...

.PHONY: e2e
e2e: ## Run the end-to-end suites on kind (Docker or Podman; or root on Debian); E2E=NAME runs one.
	hack/e2e.sh $$E2E

.PHONY: test-unit
test-unit: c-compiler ## Run the unit tests with the race detector.
	CGO_ENABLED=1 $(GO) test -race ./cmd/... ./internal/... ./pkg/...

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
	$(GO) test ./internal/webhook/injector -count=1 -update

.PHONY: vet
vet: ## Run go vet.
	@set -e; for module in $(CODE_MODULES); do echo "go vet in $$module"; (cd $$module && $(GO) vet ./...); done

.PHONY: lint
lint: bin/golangci-lint bin/actionlint ## Run golangci-lint, and actionlint for the workflows.
	bin/actionlint
	bin/golangci-lint config verify
	@set -e; for module in $(CODE_MODULES); do \
		echo "golangci-lint in $$module"; \
		(cd $$module && $(CURDIR)/bin/golangci-lint run --allow-serial-runners -c $(CURDIR)/.golangci.yml ./...); \
	done

# Each of these go.mod files has one tool.
TOOLS := bin/actionlint bin/benchstat bin/cyclonedx-gomod bin/golangci-lint bin/goreleaser bin/govulncheck bin/kind
$(TOOLS): bin/%: hack/tools/%/go.mod hack/tools/%/go.sum
	@echo "building $* (golangci-lint and goreleaser take minutes the first time)"
	cd hack/tools/$* && $(GO) build -o $(CURDIR)/$@ tool
	@touch $@

.PHONY: vuln
vuln: bin/govulncheck ## Look for known vulnerabilities in all modules; needs vuln.go.dev, or GOVULNDB=file:///COPY.
	hack/vuln.sh $(MODULES)

.PHONY: sbom
sbom: build bin/cyclonedx-gomod ## Write the bill of materials of the binary, and so of the image, bin/lanyard-webhook.cdx.json.
	bin/cyclonedx-gomod bin -json -std -output bin/lanyard-webhook.cdx.json bin/lanyard-webhook

.PHONY: verify
verify: ## Check that the code is formatted and that each go.mod is tidy.
	@set -e; files=$$($$($(GO) env GOROOT)/bin/gofmt -l .); if [ -n "$$files" ]; then echo "not formatted:" $$files >&2; exit 1; fi
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

# These three publish nothing.
.PHONY: release-check
release-check: bin/goreleaser ## Check the release's configuration; VERSION=v1.2.3 also checks that the files say so.
	hack/release.sh check "$$VERSION"

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

# The race detector needs a C compiler. Without this check, the linker's error
# would not say so.
.PHONY: c-compiler
c-compiler:
	@echo '#include <stdlib.h>' | $$(CGO_ENABLED=1 $(GO) env CC) -x c -fsyntax-only - 2>/dev/null || { \
		echo "The race detector needs a C compiler and the C library's headers: install gcc and" >&2; \
		echo "libc6-dev (Debian, Ubuntu), gcc and glibc-devel (Fedora), or Xcode's command line tools (macOS)." >&2; \
		exit 1; }
