# How things are compiled. Sources are found by wildcard, so a new file needs no line here.
#
# Variables: BUILD chooses the variant and with it OUT, the folder everything goes to. Objects mirror the
# tree under $(OUT)/obj, generated headers are in $(OUT)/gen, test programs in $(OUT)/tests/<folder>/.
#
# A test program may name further inputs of its link in a comment among its first 30 lines:
#     /* link: -lcuda */        added to its link line (the simulated device's folder is on the search path)
#     /* build: tests/x.c */    more sources, compiled into it
#
# tests/simcuda/rules.mk adds what it makes to SIM_TARGETS.
WARN := -Wall -Wextra -Wshadow -Wundef -Wconversion -Wmissing-prototypes -Wstrict-prototypes -Wvla
CFLAGS ?= -O2 -g
CFLAGS_release :=
CFLAGS_debug := -O0 -DGC_CHECK=1
CFLAGS_asan := -O1 -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer -DGC_CHECK=1
CFLAGS_tsan := -O1 -fsanitize=thread -Wno-tsan -DGC_CHECK=1
CFLAGS_cov := -O0 --coverage -DGC_CHECK=1
LDFLAGS_asan := -fsanitize=address,undefined
LDFLAGS_tsan := -fsanitize=thread
LDFLAGS_cov := --coverage
ifeq ($(filter $(BUILD),release debug asan tsan cov),)
$(error BUILD=$(BUILD) is unknown: release, debug, asan, tsan or cov)
endif
VERSION := $(shell cat VERSION)
# Core and tools are compiled without the CUDA headers on the include path.
CUDA_INCLUDE := $(if $(filter /usr,$(CUDA_HOME)),,-isystem $(CUDA_HOME)/include)
# The simulated device and the tests on it take CUDA 13 headers, whatever the library is built with.
SIM_CUDA_HOME := $(firstword $(foreach d,$(CUDA_HOME) /usr/local/cuda $(CURDIR)/build/cuda,$(if $(shell \
	grep -s 'define CUDA_VERSION 13' $(d)/include/cuda.h),$(d))) $(CUDA_HOME))
BASE_CFLAGS := -std=gnu11 -fvisibility=hidden -fPIC -ffunction-sections -fdata-sections -pthread $(WARN) $(if $(CI),-Werror) -I. -I$(OUT)/gen \
	-DGC_VERSION='"$(VERSION)"'
# The library is preloaded, never loaded late, so its thread-locals can use the initial-exec model.
CORE_CFLAGS := $(BASE_CFLAGS) -ftls-model=initial-exec $(CFLAGS) $(CFLAGS_$(BUILD))
ALL_CFLAGS := $(BASE_CFLAGS) $(CUDA_INCLUDE) $(CFLAGS) $(CFLAGS_$(BUILD))
ALL_LDFLAGS := -pthread $(LDFLAGS_$(BUILD))
SIM_CFLAGS := $(BASE_CFLAGS) -isystem $(SIM_CUDA_HOME)/include $(CFLAGS) $(CFLAGS_$(BUILD))

Q := $(if $(V),,@)
# $(call say,LD) prints the short line; with V=1 make prints the command instead.
say = $(if $(V),,@printf '  %-5s %s\n' '$(1)' '$(patsubst $(CURDIR)/%,%,$@)')

CORE_SRC := $(wildcard core/*.c core/*/*.c)
CORE_TABLES := core/classes/tables.S
# Rooms that read models: they make the module and belong to the tool, and nothing of them is preloaded.
MODEL_ROOMS := $(filter-out opaque names halves,$(shell sed -nE '/^model:/,$$s/^([a-z]+): .*/\1/p' core/ROOMS))
PRELOADED_SRC := $(filter-out $(foreach r,$(MODEL_ROOMS),core/$(r)/%),$(CORE_SRC))
SHIM_SRC := $(wildcard shim/*.c shim/*.S shim/*/*.c shim/*/*.S)
TOOL_SRC := $(wildcard tools/*.c tools/*/*.c)
SIM_SRC := $(filter-out %/test_%,$(wildcard tests/simcuda/driver/*.c tests/simcuda/driver/*/*.c))
obj = $(patsubst %,$(OUT)/obj/%.o,$(basename $(1)))

# ---- the report's page ----

# Its style, and its scripts in the order of their names, are set into it; the data comes between the two halves, which
# become arrays of bytes for core/report/html.c.
PAGE := $(OUT)/gen/page.h
PAGE_SRC := core/report/page/page.html core/report/page/page.css $(sort $(wildcard core/report/page/*.js))
GENERATED += $(PAGE)
# Comments on lines of their own, indentation and empty lines stay out of it.
PAGE_STRIP := sed -e '/^ *\/\*.*\*\/ *$$/d' -e '/^ *\/\*/,/\*\/ *$$/d' -e '/^ *\/\//d' -e 's/^ *//' -e '/^$$/d'
page_array = printf 'static const unsigned char $(1)[] = {\n' && od -An -v -tu1 | sed 's/[0-9][0-9]*/&,/g' && printf '0};\n'
$(PAGE): $(PAGE_SRC) scripts/rules.mk
	$(call say,GEN)
	$(Q)mkdir -p $(@D)
	$(Q)cat $(filter %.js,$^) | $(PAGE_STRIP) > $(OUT)/gen/page.js
	$(Q)$(PAGE_STRIP) core/report/page/page.css > $(OUT)/gen/page.css
	$(Q)set -e; { sed -e '/^@DATA@/,$$d' -e '/^@STYLE@/{' -e 'r $(OUT)/gen/page.css' -e 'd' -e '}' core/report/page/page.html | \
		{ $(call page_array,page_head); }; \
		sed -e '1,/^@DATA@/d' -e '/^@SCRIPT@/{' -e 'r $(OUT)/gen/page.js' -e 'd' -e '}' core/report/page/page.html | \
		{ $(call page_array,page_tail); }; } > $@.new
	$(Q)mv $@.new $@

# ---- the key of the build ----

# A hash of core's sources: the library refuses a module that other sources made (core/report/model_module.h). Written
# only where it changes, so that only then its users are compiled again.
SOURCES_HASH := $(OUT)/gen/sources_hash.h
GENERATED += $(SOURCES_HASH)
$(SOURCES_HASH): force
	$(Q)mkdir -p $(@D)
	$(Q)sha256sum $(sort $(wildcard core/*.[ch] core/*/*.[chS] core/*/*.def core/*/*.txt core/*/page/*)) > $@.sums
	$(Q)sha256sum < $@.sums | sed -E 's/^(.{24}).*/#define GC_SOURCES_HASH "\1"/' > $@.new
	$(Q)if cmp -s $@.new $@; then rm $@.new; else mv $@.new $@; fi

# ---- objects ----

# Changes with the flags, which makes every object out of date.
FLAGS_FILE := $(OUT)/obj/.flags
$(FLAGS_FILE): force
	$(Q)mkdir -p $(@D)
	$(Q)printf '%s\n' '$(CC) $(subst ','\'',$(ALL_CFLAGS) $(ALL_LDFLAGS) $(SIZE_ROOMS))' > $@.new
	$(Q)if cmp -s $@.new $@; then rm $@.new; else mv $@.new $@; fi

# Rooms that no allocation, free or submission passes through: small rather than fast.
SIZE_ROOMS := core/config core/debug core/io core/report shim/life shim/public
$(foreach r,$(SIZE_ROOMS),$(OUT)/obj/$(r)/%.o): FOR_SIZE := $(if $(filter -O2,$(CFLAGS) $(CFLAGS_$(BUILD))),-Os)

# C++ is for benchmarks only: structures to compare with.
$(OUT)/obj/tests/bench/%.o: tests/bench/%.cc $(FLAGS_FILE)
	$(call say,CXX)
	$(Q)mkdir -p $(@D)
	$(Q)$(CXX) -std=c++17 -pthread -Wall -Wextra $(if $(CI),-Werror) -I. $(CFLAGS) $(CFLAGS_$(BUILD)) -MMD -MP -c -o $@ $<

# Sources see generated headers; rules that make some add them to GENERATED.
$(OUT)/obj/%.o: %.c $(FLAGS_FILE) | generated
	$(call say,CC)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) $(FOR_SIZE) -MMD -MP -c -o $@ $<
$(OUT)/obj/core/%.o: core/%.c $(FLAGS_FILE) | generated
	$(call say,CC)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(CORE_CFLAGS) $(FOR_SIZE) -MMD -MP -c -o $@ $<
$(OUT)/obj/tools/%.o: tools/%.c $(FLAGS_FILE) | generated
	$(call say,CC)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(CORE_CFLAGS) -MMD -MP -c -o $@ $<
$(OUT)/obj/tests/%.o: tests/%.c $(FLAGS_FILE) | generated
	$(call say,CC)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(SIM_CFLAGS) -MMD -MP -c -o $@ $<
$(OUT)/obj/%.o: %.S $(FLAGS_FILE)
	$(call say,AS)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) -MMD -MP -c -o $@ $<
$(call obj,$(CORE_TABLES)): $(wildcard core/classes/*.txt)
-include $(shell test -d $(OUT)/obj && find $(OUT)/obj -name '*.d')

# ---- the library and the tool ----

# The tool alone draws on terminals.
TOOL_LIBS := -ljansson -ldw -lelf -lncursesw -ltinfo -lm -ldl

# The exports of the library: every wrapped entry point of the table, the two resolvers, its own names. The
# node is anonymous on purpose: it interposes versioned symbols (cudaMalloc@libcudart.so.13) too.
# Not the resolvers under a sanitizer, which calls dlsym before instrumented code can run: there only linked symbols
# lead to the library.
EXPORTS := $(OUT)/gen/exports.map
$(EXPORTS): shim/api.def $(wildcard shim/*.def shim/*/*.def) scripts/rules.mk
	$(call say,GEN)
	$(Q)mkdir -p $(@D)
	$(Q)printf '#define API(symbol, ...) symbol;\n#define RUNTIME(symbol, ...) symbol;\n#define NVML(symbol, ...) symbol;\n#include "shim/api.def"\n' | \
		$(CC) -E -P -I. -x c - > $@.names
	$(Q){ echo '{ global: $(if $(filter asan tsan,$(BUILD)),,dlopen; dlclose; dlsym; dlvsym;) gpucache_*;'; tr ' ' '\n' < $@.names; echo 'local: *; };'; } > $@

# Its own names bind to itself (and cost nothing at load); programs keep pointers into it, so it stays.
LIB_LDFLAGS := -Wl,--gc-sections -Wl,-Bsymbolic-functions -Wl,-z,nodelete -Wl,-z,now -Wl,-z,relro
LIB := $(OUT)/libgpucache.so
# Raised when gpucache.h breaks with programs that were built before (scripts/check-abi.sh).
SONAME := libgpucache.so.0
# The rooms that may be preloaded, as an archive: the library links the objects that the shim uses.
PRELOADED_ARCHIVE := $(OUT)/obj/preloaded.a
$(PRELOADED_ARCHIVE): $(call obj,$(PRELOADED_SRC))
	$(call say,AR)
	$(Q)mkdir -p $(@D)
	$(Q)rm -f $@ && ar rcsD $@ $^

$(LIB): $(call obj,$(SHIM_SRC)) $(PRELOADED_ARCHIVE) $(EXPORTS)
	$(call say,LD)
	$(Q)$(CC) -shared $(ALL_LDFLAGS) $(LDFLAGS) -Wl,-soname,$(SONAME) -Wl,--version-script,$(EXPORTS) \
		$(if $(filter asan tsan,$(BUILD)),,-Wl$(,)-z$(,)defs) $(LIB_LDFLAGS) -Wl,--as-needed \
		-o $@ $(filter %.o,$^) $(PRELOADED_ARCHIVE) -ldl
	$(Q)ln -sf $(@F) $(OUT)/$(SONAME)

# Core as an archive: the tool and the tests link the objects that they use.
CORE_ARCHIVE := $(OUT)/obj/core.a
$(CORE_ARCHIVE): $(call obj,$(CORE_SRC) $(CORE_TABLES))
	$(call say,AR)
	$(Q)mkdir -p $(@D)
	$(Q)rm -f $@ && ar rcsD $@ $^

# The module that the library opens to read a model: the part of core's archive that its one export needs, with
# copies of its own of the lower rooms' code. It exports nothing else, so that it shares no variable with the library.
MODULE := $(OUT)/libgpucache-model.so
MODULE_SYMBOL := gpucache_model_module
$(MODULE): $(CORE_ARCHIVE) scripts/rules.mk
	$(call say,LD)
	$(Q)echo '{ global: $(MODULE_SYMBOL); local: *; };' > $(OUT)/gen/module.map
	$(Q)$(CC) -shared $(ALL_LDFLAGS) $(LDFLAGS) -Wl,-u,$(MODULE_SYMBOL) -Wl,--version-script,$(OUT)/gen/module.map \
		$(if $(filter asan tsan,$(BUILD)),,-Wl$(,)-z$(,)defs) $(LIB_LDFLAGS) -Wl,--as-needed -o $@ $(CORE_ARCHIVE)

TOOL := $(OUT)/gpucache
$(TOOL): $(call obj,$(TOOL_SRC)) $(CORE_ARCHIVE)
	$(call say,LD)
	$(Q)$(CC) $(ALL_LDFLAGS) $(LDFLAGS) -Wl,--as-needed -o $@ $(call obj,$(TOOL_SRC)) $(CORE_ARCHIVE) $(TOOL_LIBS)

# ---- what engines load: tools/engines/ENGINE, each with what it needs itself and a target of its own ----

include $(wildcard tools/engines/*/rules.mk)

# ---- the simulated device ----

SIM_TARGETS :=
-include tests/simcuda/rules.mk

# ---- test programs ----

# Programs the runner starts itself: each prints TAP.
#   tests/unit/<room>/test_*.c, tests/{model,faults}/test_*.c   cmocka, with core and the helpers in tests/unit itself
#   tests/unit/tools/test_*.c                                   the same, with the tools' objects too (all but main's)
#   tests/unit/sim/test_*.c, tests/simcuda/**/test_*.c          cmocka, with the simulated driver and nothing of core
TEST_DIRS := unit model faults
TEST_SRC := $(foreach d,$(TEST_DIRS),$(wildcard tests/$(d)/test_*.c tests/$(d)/*/test_*.c))
SIM_TEST_SRC := $(wildcard tests/unit/sim/test_*.c) $(wildcard tests/simcuda/test_*.c tests/simcuda/*/test_*.c)
TOOL_TEST_SRC := $(wildcard tests/unit/tools/test_*.c)
CORE_TEST_SRC := $(filter-out $(SIM_TEST_SRC) $(TOOL_TEST_SRC),$(TEST_SRC))
TEST_HELPERS := $(call obj,$(filter-out tests/unit/test_%,$(wildcard tests/unit/*.c)))
# Programs that scripts start: tests/<folder>/*.c not named test_*, and tests/<folder>/progs/*.c, in tests/preload also
# those of its rooms. lib*.c becomes a shared object. With nvcc *.cu is built as NAME-shared, with the toolkit's shared
# runtime, NAME-static, with the simulated runtime's archive, and for a GPU NAME-nvidia, with NVIDIA's static runtime.
PROG_DIRS := preload clients formats gpu bench soak engines/slurm
PROG_SRC := $(foreach d,$(PROG_DIRS),$(filter-out tests/$(d)/test_%,$(wildcard tests/$(d)/*.c)) $(wildcard tests/$(d)/progs/*.c tests/$(d)/*/progs/*.c)) \
	$(wildcard demo/*.c)
TORTURE_SRC := $(wildcard tests/preload/reuse/progs/torture_*.c)
PROG_SRC := $(filter-out $(TORTURE_SRC),$(PROG_SRC))
# Without a C++ compiler the one program that needs it is left out.
PROG_SRC := $(if $(shell command -v $(firstword $(CXX))),$(PROG_SRC),$(filter-out tests/bench/pairs_tree.c,$(PROG_SRC)))
CU_SRC := $(foreach d,$(PROG_DIRS),$(wildcard tests/$(d)/*.cu tests/$(d)/progs/*.cu tests/$(d)/*/progs/*.cu)) $(wildcard demo/*.cu)
NVCC ?= $(firstword $(wildcard $(SIM_CUDA_HOME)/bin/nvcc) $(shell command -v nvcc 2>/dev/null))

# tests/preload/<room>/progs/x.c becomes $(OUT)/tests/preload/x.
flatten = $(subst /progs/,/,$(call without_rooms,$(patsubst demo/%,tests/demo/%,$(1)),$(PRELOAD_ROOMS)))
PRELOAD_ROOMS := $(notdir $(patsubst %/progs,%,$(wildcard tests/preload/*/progs)))
without_rooms = $(if $(2),$(call without_rooms,$(subst tests/preload/$(firstword $(2))/,tests/preload/,$(1)),$(wordlist 2,$(words $(2)),$(2))),$(1))
test_program = $(patsubst tests/%.c,$(OUT)/tests/%,$(1))
TEST_PROGRAMS := $(call test_program,$(CORE_TEST_SRC) $(TOOL_TEST_SRC) $(SIM_TEST_SRC))
PROG_PROGRAMS := $(foreach s,$(PROG_SRC),$(if $(filter lib%,$(notdir $(s))),$(patsubst %.c,$(OUT)/%.so,$(call flatten,$(s))),$(patsubst %.c,$(OUT)/%,$(call flatten,$(s)))))
CU_PROGRAMS := $(if $(NVCC),$(foreach s,$(CU_SRC),$(patsubst %.cu,$(OUT)/%-shared,$(call flatten,$(s))) $(patsubst %.cu,$(OUT)/%-static,$(call flatten,$(s)))))

# The programs of the tests on a GPU: they need no simulated device, cmocka or jansson.
GPU_PROGRAMS := $(filter $(OUT)/tests/gpu/%,$(PROG_PROGRAMS)) $(filter $(OUT)/tests/demo/%,$(PROG_PROGRAMS)) \
	$(filter %-shared,$(CU_PROGRAMS)) $(patsubst %-shared,%-nvidia,$(filter %-shared,$(CU_PROGRAMS)))

# The `link:` and `build:` comments of a source.
source_says = $$(sed -n '1,30s,.*/\* $(1): \(.*\) \*/.*,\1,p' $(2))
SIM_LINK = -L$(OUT)/simcuda -Wl,-rpath,'$$ORIGIN/../../../simcuda:$$ORIGIN/../../simcuda'

$(call test_program,$(CORE_TEST_SRC)): $(OUT)/tests/%: $(OUT)/obj/tests/%.o $(TEST_HELPERS) $(CORE_ARCHIVE)
	$(call say,LD)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(ALL_LDFLAGS) $(LDFLAGS) -o $@ $(filter %.o,$^) $(CORE_ARCHIVE) $(call source_says,link,tests/$*.c) -lcmocka -ljansson -lm -ldl
$(call test_program,$(TOOL_TEST_SRC)): $(OUT)/tests/%: $(OUT)/obj/tests/%.o $(TEST_HELPERS) \
		$(filter-out %/main.o,$(call obj,$(TOOL_SRC))) $(CORE_ARCHIVE)
	$(call say,LD)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(ALL_LDFLAGS) $(LDFLAGS) -o $@ $(filter %.o,$^) $(CORE_ARCHIVE) $(call source_says,link,tests/$*.c) -lcmocka $(TOOL_LIBS)
$(call test_program,$(SIM_TEST_SRC)): $(OUT)/tests/%: $(OUT)/obj/tests/%.o | sim
	$(call say,LD)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $< $(SIM_LINK) -Wl,--push-state,--as-needed -l:libcuda.so.1 -Wl,--pop-state \
		$(call source_says,link,tests/$*.c) -lcmocka -lm -ldl

# Pattern rules cannot drop `progs/`, so each program gets its rule by a template.
define prog_rule
$(2): $(call obj,$(1)) | $(if $(filter tests/gpu/% demo/%,$(1)),,sim)
	$$(call say,LD)
	$$(Q)mkdir -p $$(@D)
	$$(Q)$$(CC) $$(ALL_LDFLAGS) $(if $(filter %.so,$(2)),-shared) -o $$@ $$(filter %.o,$$^) $$(filter %.a,$$^) $$(call source_says,build,$(1)) -L$$(OUT)/simcuda $$(call source_says,link,$(1)) -lm -ldl
endef
$(foreach s,$(PROG_SRC),$(eval $(call prog_rule,$(s),$(patsubst %.c,$(OUT)/%$(if $(filter lib%,$(notdir $(s))),.so),$(call flatten,$(s))))))

$(OUT)/tests/bench/pairs_tree: $(OUT)/obj/tests/bench/tree.o
$(OUT)/tests/preload/torture: $(call obj,$(TORTURE_SRC))
$(addprefix $(OUT)/tests/,formats/model_dump formats/graph_dump formats/ops_dump bench/placement preload/group_state): $(CORE_ARCHIVE)
$(OUT)/tests/bench/placement: $(call obj,tools/plan/plan_threads.c)
BENCH_PROGRAMS := $(filter $(OUT)/tests/bench/%,$(PROG_PROGRAMS))

# The fuzzers, compiled only: scripts/fuzz.sh links them, with clang.
FUZZ_SRC := $(wildcard tests/fuzz/fuzz_*.c)
FUZZ_OBJECTS := $(call obj,$(FUZZ_SRC))

NVCC_FLAGS := -O2 -I. -Xcompiler -pthread -Wno-deprecated-gpu-targets
define cu_rule
$(2)-shared: $(1) $$(FLAGS_FILE)
	$$(call say,NVCC)
	$$(Q)mkdir -p $$(@D)
	$$(Q)$$(NVCC) $$(NVCC_FLAGS) -cudart shared -o $$@ $$< $$(call source_says,link,$(1)) -ldl
$(2)-static: $(1) $$(FLAGS_FILE) | sim
	$$(call say,NVCC)
	$$(Q)mkdir -p $$(@D)
	$$(Q)$$(NVCC) $$(NVCC_FLAGS) -cudart none -o $$@ $$< $$(OUT)/simcuda/libcudart_static.a $$(call source_says,link,$(1)) -ldl -lpthread -lrt
$(2)-nvidia: $(1) $$(FLAGS_FILE)
	$$(call say,NVCC)
	$$(Q)mkdir -p $$(@D)
	$$(Q)$$(NVCC) $$(NVCC_FLAGS) -cudart static -o $$@ $$< $$(call source_says,link,$(1)) -ldl
endef
$(foreach s,$(CU_SRC),$(eval $(call cu_rule,$(s),$(patsubst %.cu,$(OUT)/%,$(call flatten,$(s))))))

# ---- examples ----

# Built as by a program outside of the tree: the header, the library, a plain language standard.
CXX := $(if $(filter default undefined,$(origin CXX)),g++,$(CXX))
EXAMPLE_SRC := $(wildcard examples/*.c) $(if $(shell command -v $(CXX)),$(wildcard examples/*.cpp))
EXAMPLES := $(patsubst examples/%,$(OUT)/examples/%,$(basename $(EXAMPLE_SRC)))
EXAMPLE_FLAGS := -O2 -pedantic -Wall -Wextra $(if $(CI),-Werror) -idirafter core -isystem $(SIM_CUDA_HOME)/include
EXAMPLE_LINK = $(LDFLAGS_$(BUILD)) -L$(OUT) -L$(OUT)/simcuda $(call source_says,link,$<) -Wl,-rpath,'$$ORIGIN/..' -ldl
$(OUT)/examples/%: examples/%.c core/gpucache.h $(LIB) | sim
	$(call say,CC)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) -std=c99 $(EXAMPLE_FLAGS) -o $@ $< $(EXAMPLE_LINK)
$(OUT)/examples/%: examples/%.cpp core/gpucache.h $(LIB) | sim
	$(call say,CXX)
	$(Q)mkdir -p $(@D)
	$(Q)$(CXX) -std=c++17 $(EXAMPLE_FLAGS) -o $@ $< $(EXAMPLE_LINK)

.PHONY: force generated sim programs examples page
page: $(PAGE)
examples: $(EXAMPLES)
# Tests that need only core, for another machine.
.PHONY: core-test-programs
core-test-programs: $(call test_program,$(CORE_TEST_SRC))
generated: $(GENERATED)
sim: $(SIM_TARGETS)
programs: $(TEST_PROGRAMS) $(PROG_PROGRAMS) $(CU_PROGRAMS) $(EXAMPLES) $(FUZZ_OBJECTS)
