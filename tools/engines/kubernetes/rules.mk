# The device plugin: Go, with Debian's packages of gRPC and protobuf (scripts/deps.sh kubernetes), without modules. Go finds the
# plugin's packages under a link in a workspace below the build folder.
KUBERNETES_PLUGIN := $(OUT)/engines/kubernetes/gpucache-device-plugin
KUBERNETES_SRC := $(wildcard tools/engines/kubernetes/*.go tools/engines/kubernetes/*/*.go)
GO_PLACE := $(abspath $(OUT))/engines/kubernetes
# cgo takes the flags of a package's build from the environment.
GO_ENV := CGO_CFLAGS="-O2 -g $(CFLAGS)" CGO_LDFLAGS="$(LDFLAGS)" GO111MODULE=off GOFLAGS=-trimpath GOPATH=$(GO_PLACE)/go:/usr/share/gocode GOCACHE=$(GO_PLACE)/cache

$(KUBERNETES_PLUGIN): $(KUBERNETES_SRC)
	$(call say,GO)
	$(Q)mkdir -p $(GO_PLACE)/go/src/gpucache.dev
	$(Q)ln -sfn $(CURDIR)/tools/engines/kubernetes $(GO_PLACE)/go/src/gpucache.dev/kubernetes
	$(Q)cd $(GO_PLACE)/go/src/gpucache.dev/kubernetes && \
		$(GO_ENV) go build -buildmode=pie -ldflags '-compressdwarf=false -X main.version=$(VERSION)' -o $(abspath $@) gpucache.dev/kubernetes

# The tests beside the code, with a kubelet that they play.
.PHONY: kubernetes-unit
kubernetes-unit: $(KUBERNETES_PLUGIN)
	$(Q)cd $(GO_PLACE)/go/src/gpucache.dev/kubernetes && $(GO_ENV) go vet gpucache.dev/kubernetes && \
		$(GO_ENV) go test gpucache.dev/kubernetes
