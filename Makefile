# Everything a person or CI does here. `make help` lists it.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

BIN        := bin
CMDS       := $(notdir $(wildcard cmd/*))
BOX        := $(BIN)/kubebox
KUBECONFIG ?= .kubebox/kubeconfig
KUBECTL     = $(if $(wildcard $(BIN)/kubectl),$(BIN)/kubectl,kubectl) --kubeconfig $(KUBECONFIG)
# our own cluster emulates its machines; another one is expected to have KVM
OVERLAY    ?= $(if $(filter .kubebox/kubeconfig,$(KUBECONFIG)),config/kubebox,config/default)
LINT       := go tool -modfile=hack/tools/go.mod golangci-lint
# what the linter keeps has the paths of the checkout it looked at, and is wrong for another one
LINT_CACHE ?= $(HOME)/.cache/golangci-lint
export GOLANGCI_LINT_CACHE := $(LINT_CACHE)$(CURDIR)
# not for the modules that contain all of Kubernetes and Helm, which these would read from end to end; go vet looks at them with the tests
LIGHT      := --disable exhaustive,gosec,govet,staticcheck,unparam,unused
FUZZTIME   ?= 1m

# One set of flags for programs, tests and tools, hack/kubebox and hack/images too: what they share is compiled once.
export CGO_ENABLED := 0
# Without what only a debugger reads, compiling takes a tenth less: programs are stripped anyway, and traces do not need it.
export GOFLAGS     := -trimpath -buildvcs=false -gcflags=all=-dwarf=false

##@ The two commands
.PHONY: demo test
demo: ## a cluster on this machine, Berth on it, and a VM's nine steps as they happen
	@# What images are made of is downloaded while the cluster's programs are compiled. If that fails, making the images says why.
	@$(MAKE) --no-print-directory parts & $(MAKE) --no-print-directory up && wait
	@$(MAKE) --no-print-directory images install
	@go run ./hack/demo

test: packages ## everything CI runs, with a summary: lint, unit, host, API server, end to end
	@go run ./hack/test

##@ Build
.PHONY: build images load
build: $(CMDS:%=$(BIN)/%) ## the programs, static, in bin/

.PHONY: $(CMDS:%=$(BIN)/%)
$(CMDS:%=$(BIN)/%): $(BIN)/%:
	@GOGC=400 go build -ldflags '-s -w' -o $@ ./cmd/$*

images: build ## the container images and the test guest, loaded into the cluster if it runs
	@go run ./hack/images all
	@if [ -e .kubebox/kubeconfig ]; then $(MAKE) --no-print-directory load; fi

# the modules first: those of the name server are needed before the images
.PHONY: parts
parts: ## what programs and images are made from, downloaded
	@go -C hack/kubebox/coredns list -deps . >/dev/null
	@for module in hack/kubebox/csi hack/kubebox/csi/provisioner; do go -C $$module list -deps tool >/dev/null; done
	@go list -deps ./cmd/... ./hack/demo >/dev/null
	@go -C driver list -deps ./cmd/... >/dev/null
	@go run ./hack/images parts

load: ## the images that were made, loaded into the cluster
	@$(BOX) load $(BIN)/images/*.tar

##@ Release
RELEASE = go -C hack/release run .
TO      = -registry '$(REGISTRY)' $(if $(CA),-ca $(abspath $(CA))) $(if $(PLAIN_HTTP),-plain-http) $(if $(DIST),-dist $(abspath $(DIST)))
.PHONY: release push manifest
release: ## dist/ for others to install from, out of a clean tree: VERSION=v0.2.0
	@$(RELEASE) make -version '$(VERSION)'

push: ## the images of dist/ to a registry: REGISTRY=HOST/PATH, CA=FILE if it is to be trusted, PLAIN_HTTP=1 if it has no TLS
	@$(RELEASE) push $(TO)

manifest: ## berth.yaml of dist/ with its images at REGISTRY; SIDE=data for the data side alone
	@$(RELEASE) manifest $(TO) $(if $(filter data,$(SIDE)),berth-data,berth)

##@ Cluster
.PHONY: up down status install uninstall $(BOX)
$(BOX):
	@go -C hack/kubebox run ./boot

up: ## a real three-node Kubernetes on this machine (KUBECONFIG=.kubebox/kubeconfig)
	@go -C hack/kubebox run ./boot up

down: ## stop it and leave nothing behind
	@if [ -x $(BOX) ]; then $(BOX) down; fi

status: $(BOX) ## what runs
	@$(BOX) status

# With REGISTRY the release that is in dist/ is installed, from there; without, what is in this tree, on our own cluster.
install: $(if $(REGISTRY),install-release,install-tree) ## Berth on the cluster of KUBECONFIG; REGISTRY=HOST/PATH: the release that was pushed there

.PHONY: install-release install-tree
install-release:
	@manifest=$$(mktemp); trap 'rm $$manifest' EXIT; \
	  $(RELEASE) manifest $(TO) $(if $(filter data,$(SIDE)),berth-data,berth) > $$manifest; \
	  $(KUBECTL) apply --server-side --force-conflicts -f $$manifest
	@$(KUBECTL) -n berth rollout status deployment --timeout 5m
	@if [ '$(SIDE)' != data ]; then $(KUBECTL) -n berth-node rollout status daemonset --timeout 5m; fi

# what make asks before it runs the first line
HAD = $(shell $(KUBECTL) get namespace berth -o name 2>/dev/null)
install-tree:
	@# definitions first: an overlay may have objects of their kinds, which the API server does not know before
	@$(KUBECTL) apply --server-side --force-conflicts -k config/crd
	@$(KUBECTL) kustomize config/crd | $(KUBECTL) wait --for condition=Established --timeout 1m -f - >/dev/null
	@$(KUBECTL) apply --server-side --force-conflicts -k $(OVERLAY)
	@# the images keep their name when they change; what was not there before runs the new ones already
	@$(if $(HAD),$(KUBECTL) -n berth rollout restart deployment >/dev/null)
	@$(KUBECTL) -n berth rollout status deployment --timeout 5m || { $(KUBECTL) -n berth get pods \
	  -o custom-columns='POD:.metadata.name,IMAGE:.spec.containers[*].image,WAITS FOR:.status.containerStatuses[*].state.waiting.reason,SAYS:.status.containerStatuses[*].state.waiting.message'; \
	  echo "an image that is not on the nodes: 'make images' makes it and loads it into our own cluster"; exit 1; }
	@$(if $(HAD),$(KUBECTL) -n berth-node rollout restart daemonset >/dev/null)
	@$(KUBECTL) -n berth-node rollout status daemonset --timeout 5m
	@# the driver serves volumes that are in use: it starts anew only if its image is another one
	@if [ $(OVERLAY) = config/kubebox ]; then for d in localdisk localdisk-snapshot-metadata; do $(KUBECTL) -n localdisk patch daemonset $$d -p \
	  "{\"spec\":{\"template\":{\"metadata\":{\"annotations\":{\"berth.dev/image\":\"$$(cat $(BIN)/images/csi.tar.digest)\"}}}}}" >/dev/null; done; \
	  $(KUBECTL) -n localdisk rollout status daemonset localdisk --timeout 5m; fi

uninstall: build ## take it off again; WITH_DATA=keep: machines, volumes and claims stay
	@$(BIN)/virtctl --kubeconfig $(KUBECONFIG) uninstall $(if $(WITH_DATA),--with-data=$(WITH_DATA))

##@ Test
.PHONY: packages
packages: ## install the Debian packages that tests and benches need
	@missing=; for p in $$(sed 's/#.*//' hack/packages); do \
	  [ "$$(dpkg-query -Wf '$${db:Status-Status}' $$p 2>/dev/null)" = installed ] || missing="$$missing $$p"; done; \
	if [ -z "$$missing" ]; then exit 0; fi; \
	if [ "$$(id -u)" != 0 ]; then echo "missing packages, as root run: apt-get install -y$$missing"; exit 1; fi; \
	echo "installing$$missing"; apt-get update -q >/dev/null; \
	DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends $$missing >/dev/null

.PHONY: check lint generate generate-check unit host apiserver e2e fuzz
check: lint generate-check ## the quick part: lint and generated files

# a tenth less of the processors for twice the memory
lint: export GOGC = 200
lint: ## golangci-lint over the module, the driver's, the libraries', the measurements', the cluster's and the release's
	@$(LINT) run ./...
	@cd hack/kubebox && go tool -modfile=../tools/go.mod golangci-lint run --config ../../.golangci.yml $(LIGHT) ./...
	@cd driver && go tool -modfile=../hack/tools/go.mod golangci-lint run --config ../.golangci.yml ./...
	@for module in claim inflate lzma; do \
	  (cd pkg/$$module && go tool -modfile=../../hack/tools/go.mod golangci-lint run --config ../../.golangci.yml ./...); done
	@cd bench && go tool -modfile=../hack/tools/go.mod golangci-lint run --config ../.golangci.yml ./...
	@cd hack/release && go tool -modfile=../tools/go.mod golangci-lint run --config ../../.golangci.yml $(LIGHT) ./...

generate: ## CRDs, deep copies, reference pages
	@go generate ./...
	@go -C driver generate ./...

generate-check: generate
	@git diff --exit-code --stat || { echo "generated files differ: run 'make generate' and commit"; exit 1; }

unit: ## unit tests, with the race detector where it can find something
	@go run ./hack/test -only unit,race,driver,claim,inflate,lzma

host apiserver: ## one stage of the tests
	@go run ./hack/test -only $@

# the directories of test/e2e that have tests of Berth
AREAS = $(filter-out cluster fixture framework install,$(patsubst test/e2e/%/,%,$(wildcard test/e2e/*/)))
e2e: ## end-to-end tests on the cluster of E2E_KUBECONFIG, or on one of our own; AREA=move: only those of test/e2e/move
	@# the nodes of somebody's cluster are not ours to stop
	@if [ -n "$${E2E_KUBECONFIG:-}" ]; then go test -tags e2e -timeout 90m -p 1 -parallel 4 -skip 'NodeStopped|MigrationFaults|MachineBootsEarly/another' $(addprefix ./test/e2e/,$(or $(AREA),$(AREAS))); \
	else go run ./hack/test -only cluster,e2e,e2e-alone $(if $(AREA),-area $(AREA)); fi

fuzz: ## every fuzz target for FUZZTIME
	@go run ./hack/fuzz -time $(FUZZTIME)

##@ Measure
# They are a module of their own, and run at the top, where their results belong. FLAGS are for the program: FLAGS='-only f'.
measure = go -C bench build -o $(abspath $(BIN))/measure/$(or $(2),$(1)) ./$(1) && $(BIN)/measure/$(or $(2),$(1))
.PHONY: bench bench-upload bench-control bench-peers bench-vm bench-localdisk bench-netdisk bench-copies bench-move bench-stream bench-web bench-export bench-backup
bench: build packages ## our worker beside qemu-img, curl and the bounds; writes bench/results.md
	@$(call measure,.,transfers) $(FLAGS)
	@$(MAKE) --no-print-directory bench-upload

bench-upload: build packages ## uploads through the proxy beside a plain TLS copy; writes bench/upload/results.md
	@$(call measure,upload) $(FLAGS)

bench-export: build packages ## disks out of the cluster beside plain reads and qemu-img convert; writes bench/export/results.md
	@$(call measure,export) $(FLAGS)

bench-backup: packages ## disks out of chains of backups beside one image, and backups beside qemu-img convert; writes bench/backup/results.md
	@$(call measure,backup) $(FLAGS)

bench-vm: ## a machine's steps on the cluster that runs, both binding modes; writes bench/vm/results.md
	@$(call measure,vm) $(FLAGS)

bench-control: $(BOX) ## a thousand DataVolumes on a real API server with simulated nodes
	@$(call measure,control) $(FLAGS)

bench-peers: build $(BOX) packages ## CDI's controller and ours in turn, on the same API server with simulated nodes, and CDI's importer beside our worker; writes bench/control/peers.md, bench/importer.md
	@$(call measure,control) -peers
	@go run ./hack/images -o $(BIN)/images/cdi cdi-importer
	@$(call measure,.,transfers) -runs 3 -importer $(BIN)/images/cdi/cdi-importer.tar

.PHONY: beside-kubevirt
beside-kubevirt: $(BOX) ## KubeVirt's own virt-controller over our data side, on simulated nodes; it takes seven minutes of a core to compile
	@go test -tags peers -count=1 -timeout 60m ./test/beside

.PHONY: virtctl-kubevirt
virtctl-kubevirt: build ## KubeVirt's own virtctl of 1.7 and 1.9 against Berth on the cluster of KUBECONFIG: every verb; it takes eight minutes of a core to compile
	@go -C hack/kubevirt build -o $(abspath $(BIN))/kubevirt-virtctl-1.7 kubevirt.io/kubevirt/cmd/virtctl
	@go -C hack/kubevirt19 build -o $(abspath $(BIN))/kubevirt-virtctl-1.9 kubevirt.io/kubevirt/cmd/virtctl
	@E2E_KUBECONFIG=$(abspath $(KUBECONFIG)) go test -tags peers,e2e -run '^TestKubeVirtsVirtctl' -count=1 -timeout 30m ./test/e2e/virtctl

.PHONY: velero
velero: build ## Velero backs up machines of the cluster of KUBECONFIG into an S3 server; it takes four minutes of a core to compile
	@go -C hack/velero build -ldflags '-s -w' -o $(abspath $(BIN))/velero/ github.com/vmware-tanzu/velero/cmd/velero github.com/versity/versitygw/cmd/versitygw
	@go -C hack/velero build -ldflags '-s -w' -o $(abspath $(BIN))/velero/plugins/ github.com/vmware-tanzu/velero-plugin-for-aws/velero-plugin-for-aws
	@E2E_KUBECONFIG=$(abspath $(KUBECONFIG)) go test -tags peers,e2e -run '^TestVelero$$' -count=1 -timeout 30m -v ./test/e2e/snapshot

# asked before anything is compiled for minutes
NO_BERTH = if $(KUBECTL) get namespace berth >/dev/null 2>&1; then echo "Berth is on the cluster: make uninstall first"; exit 1; fi

.PHONY: install-check
install-check: build ## a release of this commit, for amd64 alone, pushed to a registry and installed from there on our cluster without Berth
	@$(NO_BERTH)
	@$(RELEASE) make -version v0.0.0-check -quick -dist $(CURDIR)/$(BIN)/release
	@DIST=$(BIN)/release VERSION=v0.0.0-check E2E_KUBECONFIG=$(abspath $(KUBECONFIG)) \
	  go test -tags e2e,release -run TestInstallFromRegistry -count=1 -timeout 20m -v ./test/e2e/install

.PHONY: takeover-cdi
takeover-cdi: build ## Berth takes over from CDI's own programs and goes back, on our cluster without Berth; CDI takes five minutes of a core to compile
	@$(NO_BERTH)
	@go run ./hack/images berth csi
	@go run ./hack/images -o $(BIN)/images/cdi cdi
	@$(BOX) load $(BIN)/images/berth.tar $(BIN)/images/csi.tar $(BIN)/images/cdi/*.tar
	@E2E_KUBECONFIG=$(abspath $(KUBECONFIG)) go test -tags peers,e2e -count=1 -timeout 60m -v ./test/takeover

bench-localdisk: packages ## the CSI driver beside cp and fio on the same filesystem
	@go -C driver run ./bench

bench-netdisk: packages ## network disks through the launcher beside plain QEMU with the same -blockdev; writes bench/netdisk/results.md
	@$(call measure,netdisk) $(FLAGS)

bench-move: packages ## an idle guest with a sparse disk moves, beside a plain copy of its data over the same TLS; writes bench/move/results.md
	@mkdir -p bench/move
	@BERTH_BENCH_RESULTS=$(CURDIR)/bench/move/results.md go test -tags host -run '^$$' -bench '^BenchmarkMove$$' -benchtime 1x -timeout 30m ./internal/launcher

bench-stream: packages ## a guest that boots while its disk is imported, beside one whose disk is there and beside the import alone, and a LUN of a stream beside a file; writes bench/stream/results.md
	@$(call measure,stream) $(FLAGS)

bench-copies: packages ## copies beside plain QEMU, then machines over one golden claim on the cluster that runs; writes bench/overlay/results.md, bench/copies/results.md
	@$(call measure,overlay) $(FLAGS)
	@$(call measure,copies) $(FLAGS)

bench-web: packages ## the page with a thousand machines and three thousand disks in a real browser; writes bench/web/results.md
	@$(call measure,web) $(FLAGS)

##@ This page
.PHONY: help clean
help: ## this list
	@awk 'BEGIN {FS = ":.*## "} /^##@ / {printf "\n%s\n", substr($$0, 5)} /^[a-z0-9 -]+:.*## / {printf "  make %-22s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

clean: down ## remove what was built
	@rm -rf $(BIN) .cache
