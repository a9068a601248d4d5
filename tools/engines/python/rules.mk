# build/python is the package as the wheel has it; its tool and its library run with glibc 2.31 and need no other library
# that a bare system may lack (tools/engines/python/README.md).
PYTHON_ROOM := tools/engines/python
PYTHON_PACKAGE := $(OUT)/python/gpucache
PYTHON_STATIC = -ljansson -ldw -lelf -lncursesw -ltinfo -llzma -lbz2 -lz \
	$(if $(filter /%,$(shell $(CC) -print-file-name=libzstd.a)),-lzstd)
PYTHON_FILES := $(patsubst $(PYTHON_ROOM)/%,$(OUT)/python/%,$(wildcard $(PYTHON_ROOM)/gpucache/*.py)) \
	$(PYTHON_PACKAGE)/bin/gpucache $(addprefix $(PYTHON_PACKAGE)/lib/,libgpucache.so libgpucache-model.so libgpucache-torch.so)
WHEEL := $(OUT)/wheel/gpucache-$(VERSION)-py3-none-manylinux_2_31_x86_64.whl

$(OUT)/python/%.py: $(PYTHON_ROOM)/%.py
	$(Q)install -D -m 644 $< $@
$(PYTHON_PACKAGE)/lib/%.so: $(OUT)/%.so
	$(Q)mkdir -p $(@D)
	$(Q)objcopy --strip-debug $< $@
$(PYTHON_PACKAGE)/bin/gpucache: $(call obj,$(TOOL_SRC) $(PYTHON_ROOM)/glibc.c) $(CORE_ARCHIVE)
	$(call say,LD)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(ALL_LDFLAGS) $(LDFLAGS) -s -Wl,--wrap=__libc_start_main -o $@ $(filter %.o,$^) $(CORE_ARCHIVE) \
		-Wl,-Bstatic $(PYTHON_STATIC) -Wl,-Bdynamic,--no-as-needed -l:libpthread.so.0 -l:libdl.so.2 -lm
$(PYTHON_PACKAGE)/lib/libgpucache-torch.so: $(PYTHON_ROOM)/torch.cc core/gpucache.h $(FLAGS_FILE)
	$(call say,CXX)
	$(Q)mkdir -p $(@D)
	$(Q)$(CXX) -std=c++17 -shared -fPIC -fvisibility=hidden -Wall -Wextra $(if $(CI),-Werror) -I. $(CFLAGS) -s -Wl,-z,defs \
		-o $@ $< -Wl,--no-as-needed -l:libdl.so.2
$(WHEEL): $(PYTHON_FILES) scripts/wheel.py VERSION
	$(call say,WHEEL)
	$(Q)python3 scripts/wheel.py --package $(OUT)/python --output $@
