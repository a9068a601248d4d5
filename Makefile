# libgpucache. `make help` lists the targets.
#
# Settings: BUILD=release|debug|asan|tsan|cov, V=1 (show commands), CI=1 (warnings are errors),
# CUDA_HOME, CC, CFLAGS, PREFIX, DESTDIR.
, := ,
.DEFAULT_GOAL := all
.DELETE_ON_ERROR:
CC := $(if $(filter default undefined,$(origin CC)),gcc,$(CC))
# Only headers are needed: a toolkit's, those `make deps` fetched, or the distribution's.
CUDA_HOME ?= $(firstword $(foreach d,/usr/local/cuda $(CURDIR)/build/cuda /usr,$(if $(wildcard $(d)/include/cuda.h),$(d))) /usr/local/cuda)
BUILD ?= release
OUT := $(if $(filter release,$(BUILD)),build,build/$(BUILD))
PREFIX ?= /usr/local
LIBDIR ?= $(PREFIX)/lib
T ?=
RUN := python3 tests/run --build $(OUT)
# All processors, unless -j is given. Several goals run one after another if one of them calls make itself or removes
# files: two makes at once would build the same files.
ifeq ($(MAKELEVEL)$(filter -j%,$(MAKEFLAGS)),0)
MAKEFLAGS += -j$(shell nproc)
endif
ifneq ($(word 2,$(MAKECMDGOALS)),)
ifneq ($(filter-out all sim examples slurm programs %-programs page compile_commands.json build/% $(OUT)/%,$(MAKECMDGOALS)),)
.NOTPARALLEL:
endif
endif

include scripts/rules.mk

# LD_PRELOAD is a list with blanks and colons between its paths.
ifneq ($(words $(CURDIR))$(findstring :,$(CURDIR)),1)
$(error $(CURDIR): LD_PRELOAD cannot name a path with a blank or a colon; put the tree elsewhere)
endif

##@ Build
.PHONY: all
all: has-headers $(if $(CORE_SRC),$(LIB) $(MODULE)) $(if $(TOOL_SRC),$(TOOL)) sim examples demo-programs ## the library, its module, the tool, the simulated device, the examples
.PHONY: has-headers
has-headers:
	@[ -e $(CUDA_HOME)/include/cuda.h ] || \
		{ echo 'no CUDA headers in $(CUDA_HOME): make demo and make deps fetch them; or set CUDA_HOME=FOLDER' >&2; exit 1; }

# The installed files, below DESTDIR, for install and uninstall.
# The library is preloaded as libgpucache.so and linked as $(SONAME): all three names are needed to run.
SHARE := $(PREFIX)/share
MAN := $(wildcard tools/man/*.[157])
COMPLETION := $(wildcard tools/man/gpucache.bash)
INSTALLED := $(LIBDIR)/libgpucache.so $(LIBDIR)/$(SONAME) $(LIBDIR)/libgpucache.so.$(VERSION) \
	$(LIBDIR)/gpucache/$(notdir $(MODULE)) $(PREFIX)/bin/gpucache \
	$(PREFIX)/include/gpucache.h $(LIBDIR)/pkgconfig/gpucache.pc \
	$(foreach m,$(MAN),$(SHARE)/man/man$(subst .,,$(suffix $(m)))/$(notdir $(m))) \
	$(if $(COMPLETION),$(SHARE)/bash-completion/completions/gpucache)

# Each is one path of plain characters: a space would split it.
.PHONY: slurm
slurm: $(SLURM_PLUGIN) ## the plugin for Slurm (needs libslurm-dev: scripts/deps.sh slurm), in build/engines/slurm
.PHONY: exporter
exporter: ## the exporter for Prometheus, in build/engines/exporter
	$(Q)scripts/deps.sh exporter
	$(Q)$(MAKE) --no-print-directory $(EXPORTER)
.PHONY: kubernetes
kubernetes: $(KUBERNETES_PLUGIN) ## the device plugin for Kubernetes (needs Go: scripts/deps.sh kubernetes), in build/engines/kubernetes
.PHONY: check-places
check-places: export PLACE_PREFIX := $(PREFIX)
check-places: export PLACE_LIBDIR := $(LIBDIR)
check-places: export PLACE_DESTDIR := $(or $(DESTDIR),/)
check-places:
	@check() { case $$2 in *[!A-Za-z0-9/._+@~:=-]*) ;; /*) return;; esac; \
		echo "$$1=$$2: an absolute path of letters, digits and /._-+@~:= is accepted" >&2; exit 1; }; \
	check PREFIX "$$PLACE_PREFIX"; check LIBDIR "$$PLACE_LIBDIR"; check DESTDIR "$$PLACE_DESTDIR"

.PHONY: install
install: check-places $(LIB) $(MODULE) $(TOOL) ## into PREFIX (/usr/local), its libraries into LIBDIR (PREFIX/lib), under DESTDIR
	install -d $(sort $(addprefix $(DESTDIR),$(dir $(INSTALLED))))
	install -m 644 $(LIB) $(DESTDIR)$(LIBDIR)/libgpucache.so.$(VERSION)
	ln -sf libgpucache.so.$(VERSION) $(DESTDIR)$(LIBDIR)/$(SONAME)
	ln -sf libgpucache.so.$(VERSION) $(DESTDIR)$(LIBDIR)/libgpucache.so
	install -m 644 $(MODULE) $(DESTDIR)$(LIBDIR)/gpucache/$(notdir $(MODULE))
	install -m 755 $(TOOL) $(DESTDIR)$(PREFIX)/bin/gpucache
	install -m 644 core/gpucache.h $(DESTDIR)$(PREFIX)/include/gpucache.h
	sed 's,@PREFIX@,$(PREFIX),; s,@LIBDIR@,$(LIBDIR),; s,@VERSION@,$(VERSION),' tools/man/gpucache.pc.in > \
		$(DESTDIR)$(LIBDIR)/pkgconfig/gpucache.pc
	chmod 644 $(DESTDIR)$(LIBDIR)/pkgconfig/gpucache.pc
	$(foreach m,$(MAN),install -m 644 $(m) $(DESTDIR)$(SHARE)/man/man$(subst .,,$(suffix $(m)))/ && )true
	$(if $(COMPLETION),install -m 644 $(COMPLETION) $(DESTDIR)$(SHARE)/bash-completion/completions/gpucache)
	@$(if $(DESTDIR),,echo 'ldconfig lets the loader find libgpucache.so by its name, where it looks into $(LIBDIR); gpucache run finds it by itself')

.PHONY: uninstall
uninstall: check-places ## remove the installed files
	rm -f $(addprefix $(DESTDIR),$(INSTALLED))
	rmdir --ignore-fail-on-non-empty $(DESTDIR)$(LIBDIR)/gpucache 2> /dev/null || true

.PHONY: deb
deb: ## Debian packages, in build/deb, read by lintian
	$(Q)scripts/deps.sh deb
	$(Q)scripts/deb.sh

.PHONY: python wheel
python: $(PYTHON_FILES) ## the Python package gpucache, in build/python: add that to PYTHONPATH
wheel: ## a wheel for pip, with the library and the tool, for glibc 2.31 and later, in build/wheel
	$(Q)scripts/deps.sh wheel
	$(Q)$(MAKE) --no-print-directory $(WHEEL)

# PYTHON: an interpreter with torch and transformers. Some hours of one processor; types measured already are kept.
ARCHITECTURES_DIR := $(OUT)/architectures
TRAINED := causal.llama causal.mistral causal.qwen2 causal.qwen3 causal.mixtral causal.gpt2 causal.gemma2 causal.phi3 causal.qwen3_moe \
	masked.bert s2s.t5 image.vit image.resnet+layer_type=bottleneck image.resnet+layer_type=basic
architectures_table = python3 scripts/architectures/table.py $(ARCHITECTURES_DIR) $(ARCHITECTURES_DIR)/bases \
	> core/classes/architectures.txt.new && mv core/classes/architectures.txt.new core/classes/architectures.txt
.PHONY: architectures
architectures: ## measure the tables of core/classes anew from transformers; by hand, PYTHON=an interpreter that has it and torch
	$(Q)mkdir -p $(ARCHITECTURES_DIR)
	$(Q)set -e; for kind in causal vlm multimodal s2s speech base masked image sequence; do \
		$(or $(PYTHON),python3) scripts/architectures/generate.py $(ARCHITECTURES_DIR) $$kind; done
	$(Q)$(or $(PYTHON),python3) scripts/architectures/bases.py $(ARCHITECTURES_DIR)/bases
	$(Q)$(architectures_table)
	$(Q)$(MAKE) --no-print-directory $(OUT)/gpucache
	$(Q)$(or $(PYTHON),python3) scripts/architectures/check.py $(OUT)/gpucache own $(ARCHITECTURES_DIR)
	$(Q)$(architectures_table)
	$(Q)$(or $(PYTHON),python3) scripts/architectures/defaults.py > core/arch/arch_defaults.def.new
	$(Q)mv core/arch/arch_defaults.def.new core/arch/arch_defaults.def
	$(Q)$(or $(PYTHON),python3) scripts/architectures/frames.py $(ARCHITECTURES_DIR)/frames causal vlm s2s speech base masked ctc detection segmentation
	$(Q)python3 scripts/architectures/frames_table.py $(ARCHITECTURES_DIR)/frames core/classes/frames.txt > core/classes/frames.txt.new
	$(Q)mv core/classes/frames.txt.new core/classes/frames.txt
	$(Q)$(or $(PYTHON),python3) scripts/architectures/training.py $(ARCHITECTURES_DIR)/training $(TRAINED)
	$(Q)mkdir -p $(ARCHITECTURES_DIR)/training_values
	$(Q)$(or $(PYTHON),python3) scripts/architectures/training_values.py $(ARCHITECTURES_DIR)/training_values $(TRAINED)
	$(Q)python3 scripts/architectures/training_table.py core/classes/training.txt $(ARCHITECTURES_DIR)/training \
		$(ARCHITECTURES_DIR)/training_values > core/classes/training.txt.new
	$(Q)mv core/classes/training.txt.new core/classes/training.txt

.PHONY: clean
clean: ## remove build/ (fetched packages in build/venv, build/cuda* too)
	rm -rf build compile_commands.json

.PHONY: deps
deps: ## install the system packages this project builds and tests with
	$(Q)scripts/deps.sh all

compile_commands.json: Makefile scripts/rules.mk $(CORE_SRC) $(SHIM_SRC) $(TOOL_SRC) $(SIM_SRC) $(TEST_SRC) $(FUZZ_SRC) ## for editors and clang-tidy
	$(call say,GEN)
	$(Q)python3 scripts/compile-commands.py $@ \
		--core $(CC) $(CORE_CFLAGS) -- $(CORE_SRC) $(TOOL_SRC) \
		--cuda $(CC) $(ALL_CFLAGS) -- $(filter %.c,$(SHIM_SRC)) \
		--cuda $(CC) $(SIM_CFLAGS) -- $(SIM_SRC) $(RUNTIME_SRC) $(TEST_SRC) $(FUZZ_SRC) \
		$(if $(wildcard /usr/include/slurm/spank.h),--core $(CC) $(BASE_CFLAGS) '-DSLURM_LIBRARY="libgpucache.so"' -- $(SLURM_SRC))

##@ Try
.PHONY: demo
demo: ## run a CUDA program without and with the library, and show both
	$(Q)scripts/deps.sh demo
	$(Q)$(MAKE) --no-print-directory all
	$(Q)BUILD_DIR=$(abspath $(OUT)) CUDA_HOME=$(CUDA_HOME) demo/run.sh
.PHONY: demo-swap
demo-swap: ## three servers of 60 % of a device each on one device, without and with overcommit, and a picture of who was resident
	$(Q)scripts/deps.sh demo
	$(Q)$(MAKE) --no-print-directory all
	$(Q)demo/swap.py --build $(abspath $(OUT))
.PHONY: demo-programs
demo-programs: $(filter $(OUT)/tests/demo/%,$(PROG_PROGRAMS) $(CU_PROGRAMS))

##@ Check
.PHONY: test
test: ## every test that needs no GPU; T=words runs the tests with one of the words in their names
	$(Q)scripts/deps.sh test
	$(Q)$(MAKE) --no-print-directory all programs
	$(Q)$(RUN) $(T)

.PHONY: test-drivers
test-drivers: ## the library's tests once with each switch of the simulated device; SHARE=40: a fortieth of them, T=words
	$(Q)scripts/deps.sh test
	$(Q)$(MAKE) --no-print-directory all programs
	$(Q)tests/drivers --build $(OUT) $(if $(SHARE),--share $(SHARE)) $(T)

.PHONY: test-nvidia
test-nvidia: ## NVIDIA's own driver, NVML and runtimes, without a device: beside the simulated device, and below the library
	$(Q)scripts/deps.sh test
	$(Q)$(MAKE) --no-print-directory all
	$(Q)tests/nvidia/run.py --build $(OUT)

.PHONY: test-torch
test-torch: ## JAX, RMM and others, then PyTorch, each allocator in each mode, on the simulated device; fetches wheels; SHORT=1: a part of PyTorch, nothing is fetched; T=words
	$(Q)scripts/deps.sh test
	$(Q)scripts/deps.sh wheel
	$(Q)$(MAKE) --no-print-directory all python
	$(Q)status=0; $(if $(SHORT),,tests/frameworks/run $(OUT) $(CC) $(T) || status=1;) \
		tests/torch/run.py --build $(OUT) $(if $(SHORT),--short) $(T) || status=1; exit $$status

.PHONY: test-exporter
test-exporter: ## the exporter of metrics: promtool, Prometheus itself, 500 processes; as root
	$(Q)scripts/deps.sh readers
	$(Q)$(MAKE) --no-print-directory exporter
	$(Q)$(MAKE) --no-print-directory all $(OUT)/tests/preload/live_client
	$(Q)BUILD_DIR=$(abspath $(OUT)) tests/engines/exporter/run.py
.PHONY: test-slurm
test-slurm: ## the plugin for Slurm: Debian's slurmctld and slurmd on one node and the simulated device; as root
	$(Q)scripts/deps.sh slurm
	$(Q)$(MAKE) --no-print-directory all slurm $(OUT)/tests/engines/slurm/fill $(OUT)/tests/preload/nvml_dlopen
	$(Q)BUILD_DIR=$(abspath $(OUT)) tests/engines/slurm/run.sh

.PHONY: test-wheel
test-wheel: wheel ## the wheel in a fresh virtual environment: the tool, the package, PyTorch on the simulated device; SYSTEM=FOLDER: a Debian 11, too
	$(Q)$(MAKE) --no-print-directory all
	$(Q)tests/engines/python/run.py --build $(OUT) --wheel $(WHEEL) $(if $(SYSTEM),--system $(SYSTEM))

.PHONY: test-ray
test-ray: wheel ## Ray with the wheel's plugin, and Dask, on the simulated device; fetches them into build/; T=words
	$(Q)$(MAKE) --no-print-directory all
	$(Q)tests/engines/ray/run.py --build $(OUT) --wheel $(WHEEL) $(T)

.PHONY: test-suites
test-suites: ## other projects' own test suites, with and without the library; by hand, before a release; SUITE=word (tests/suites/run.py)
	$(Q)scripts/deps.sh test
	$(Q)$(MAKE) --no-print-directory all
	$(Q)CC=$(CC) CUDA_HOME=$(CUDA_HOME) tests/suites/run.py --build $(OUT) $(SUITE)

.PHONY: test-clients
test-clients: ## real programs on the simulated device: ffmpeg, cuda-bindings, clients of NVML
	$(Q)scripts/deps.sh test
	$(Q)$(MAKE) --no-print-directory all programs
	$(Q)$(RUN) tests/clients/ $(T)

.PHONY: test-kubernetes
test-kubernetes: ## the device plugin in a cluster of one node, by hand: Kubernetes is built once from Debian's source; as root
	$(Q)scripts/deps.sh test
	$(Q)scripts/deps.sh kubernetes
	$(Q)tests/engines/kubernetes/build.sh
	$(Q)$(MAKE) --no-print-directory all programs kubernetes
	$(Q)$(MAKE) --no-print-directory kubernetes-unit
	$(Q)BUILD_DIR=$(abspath $(OUT)) tests/engines/kubernetes/run.sh

.PHONY: test-cdi
test-cdi: ## containers through Podman and runc, limited by the CDI specification that the tool writes; as root
	$(Q)scripts/deps.sh test
	$(Q)scripts/deps.sh containers
	$(Q)$(MAKE) --no-print-directory all programs
	$(Q)$(RUN) tests/engines/cdi/

.PHONY: fresh
fresh: ## demo, demo-swap, test and deb on bare Debian and Ubuntu systems; SUITE=, TARGET=, WHO=, FROM= choose (scripts/fresh-machine.sh)
	$(Q)scripts/fresh-machine.sh $(or $(SUITE),all) $(or $(TARGET),all) $(or $(WHO),all) $(or $(FROM),all)

# Under a sanitizer the programs that link core or the simulated driver run; under the thread sanitizer the torture test
# too, with the sanitizer's library preloaded before ours.
.PHONY: test-asan test-tsan test-debug test-cov
test-asan test-tsan test-debug test-cov: test-%: ## the unit, model and fault tests of that variant
	$(Q)scripts/deps.sh test
	$(Q)$(MAKE) --no-print-directory BUILD=$* sim test-programs
	$(Q)python3 tests/run --build build/$* --programs-only $(T)
	$(Q)$(if $(filter tsan,$*),$(if $(T),,$(MAKE) --no-print-directory torture-tsan))
.PHONY: test-programs
test-programs: $(TEST_PROGRAMS)

.PHONY: test-aarch64
test-aarch64: ## the library cross-built for aarch64, core's unit tests under qemu; skipped if packages are missing
	$(Q)scripts/aarch64.sh

.PHONY: torture
torture: all ## random programs in random settings for TORTURE_SECONDS (3600) on all processors; TORTURE_SEED=N repeats them
	$(Q)$(MAKE) --no-print-directory $(OUT)/tests/preload/torture
	$(Q)BUILD_DIR=$(abspath $(OUT)) tests/preload/reuse/torture.py --seconds $${TORTURE_SECONDS:-3600} $(if $(TORTURE_SEED),--seed $(TORTURE_SEED))

.PHONY: torture-tsan
torture-tsan: ## the torture test under the thread sanitizer, for TORTURE_SECONDS (30)
	$(Q)$(MAKE) --no-print-directory BUILD=tsan build/tsan/libgpucache.so sim build/tsan/tests/preload/torture
	$(Q)BUILD_DIR=$(CURDIR)/build/tsan tests/preload/reuse/torture_tsan.sh

.PHONY: soak
soak: all ## everything at once for SOAK_SECONDS (3600): accounts compared with the device's own, no growth
	$(Q)$(MAKE) --no-print-directory $(OUT)/tests/soak/soak $(OUT)/tests/preload/libtenant.so $(OUT)/tests/preload/libplugin.so
	$(Q)python3 tests/soak/soak.py --build $(abspath $(OUT)) --seconds $(or $(SOAK_SECONDS),3600)

.PHONY: storm
storm: all ## members that take turns in device memory, and everything happens to them, for STORM_SECONDS (1800); STORM_SEED=N
	$(Q)$(MAKE) --no-print-directory $(addprefix $(OUT)/tests/preload/,swap_member swap_observer group_state)
	$(Q)BUILD_DIR=$(abspath $(OUT)) tests/soak/swap_storm.py --seconds $(or $(STORM_SECONDS),1800) $(if $(STORM_SEED),--seed $(STORM_SEED))

.PHONY: lint
lint: ## format, clang-tidy, cppcheck, shellcheck, layers, rooms, exports, interface, tables, coverage; SHARE=10: clang-tidy's deep search of a tenth (scripts/tidy.py)
	$(Q)scripts/deps.sh lint
	$(Q)$(MAKE) --no-print-directory all compile_commands.json
	$(Q)BUILD_DIR=$(abspath $(OUT)) CUDA_HOME=$(CUDA_HOME) SHARE=$(SHARE) scripts/lint.sh

.PHONY: format
format: ## rewrite the sources by .clang-format
	$(Q)scripts/deps.sh lint
	git ls-files -co --exclude-standard '*.c' '*.h' | xargs -r clang-format -i

.PHONY: bench
bench: ## the cost of an allocation, compared with other allocators, and driver calls of whole programs; a minute on a quiet machine
	$(Q)scripts/deps.sh bench
	$(Q)$(MAKE) --no-print-directory all bench-programs
	$(Q)python3 tests/bench/bench.py --build $(OUT)
.PHONY: bench-torch
bench-torch: ## PyTorch's allocations with its own cache and, without that, on the library, by size and trace; T=names; after `make test-torch`
	$(Q)scripts/deps.sh bench
	$(Q)$(MAKE) --no-print-directory all
	$(Q)python3 tests/torch/speed.py --build $(OUT) $(T)
.PHONY: bench-programs
bench-programs: $(BENCH_PROGRAMS)

.PHONY: fuzz
fuzz: ## run each fuzzer of the parsers for FUZZ_SECONDS (30), with clang
	$(Q)$(MAKE) --no-print-directory generated
	$(Q)BUILD_DIR=$(abspath $(OUT)) scripts/fuzz.sh

.PHONY: gpu-test
gpu-test: ## the tests that need an NVIDIA GPU
	$(Q)$(MAKE) --no-print-directory gpu-programs
	$(Q)$(RUN) --folder gpu $(T)

.PHONY: gpu-bench
gpu-bench: ## on an NVIDIA GPU: costs of the driver's calls and of runs of handles, bandwidth, fences; tables in build/gpu
	$(Q)scripts/gpu.sh 1 E3
	$(Q)scripts/gpu.sh --allow-missing 3

.PHONY: gpu-programs
gpu-programs: $(LIB) $(GPU_PROGRAMS)

.PHONY: help
help: ## this list
	@awk -F':.*## ' '/^##@ /{printf "\n%s\n", substr($$0, 5)} \
		/^[a-z][a-z0-9._ -]*:.*## /{printf "  %-34s %s\n", $$1, $$2}' Makefile
	@printf '\nSettings: BUILD=release|debug|asan|tsan|cov V=1 CI=1 CUDA_HOME=%s PREFIX=%s DESTDIR= T=\n' '$(CUDA_HOME)' '$(PREFIX)'
