# The stand-in runtime: libcudart.so.13, with every symbol in the version node of the real one, and an archive whose
# only global symbols are the entry points. Both are compiled from the same sources; it takes CUDA 13 headers.
OBJCOPY ?= objcopy
RUNTIME_DIR := tests/simcuda/runtime
RUNTIME_SRC := $(wildcard $(RUNTIME_DIR)/*.c)
RUNTIME_SONAME := libcudart.so.13
RUNTIME_SO := $(SIM_OUT)/$(RUNTIME_SONAME)
RUNTIME_LINK := $(SIM_OUT)/libcudart.so
RUNTIME_ARCHIVE := $(SIM_OUT)/libcudart_static.a
RUNTIME_OBJ := $(call obj,$(RUNTIME_SRC))
RUNTIME_STATIC_OBJ := $(patsubst $(OUT)/obj/%,$(OUT)/obj/static/%,$(RUNTIME_OBJ))

CUDART_MAJOR := $(shell sed -n 's/^\#define CUDART_VERSION  *\([0-9]*\)0[0-9]0$$/\1/p' $(SIM_CUDA_HOME)/include/cuda_runtime_api.h 2>/dev/null)
ifeq ($(CUDART_MAJOR),13)
SIM_TARGETS += $(RUNTIME_SO) $(RUNTIME_LINK) $(RUNTIME_ARCHIVE)
else
SIM_TARGETS += no-runtime
.PHONY: no-runtime
no-runtime:
	@echo 'not built: the stand-in runtime, which takes CUDA 13 headers; $(SIM_CUDA_HOME) has $(or $(CUDART_MAJOR),none)'
endif

$(RUNTIME_SO): $(RUNTIME_OBJ) $(RUNTIME_DIR)/runtime.map
	$(call say,LD)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) -shared $(ALL_LDFLAGS) $(LDFLAGS) -Wl,-soname,$(RUNTIME_SONAME) \
		-Wl,--version-script,$(RUNTIME_DIR)/runtime.map $(if $(filter asan tsan,$(BUILD)),,-Wl$(,)-z$(,)defs) \
		-o $@ $(filter %.o,$^) -ldl

$(RUNTIME_LINK): $(RUNTIME_SO)
	$(Q)ln -sf $(RUNTIME_SONAME) $@

$(OUT)/obj/static/$(RUNTIME_DIR)/%.o: $(RUNTIME_DIR)/%.c $(FLAGS_FILE) | generated
	$(call say,CC)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(SIM_CFLAGS) -DRT_STATIC -MMD -MP -c -o $@ $<

# One object: what the files share among themselves becomes local to it.
$(RUNTIME_ARCHIVE): $(RUNTIME_STATIC_OBJ)
	$(call say,AR)
	$(Q)mkdir -p $(@D)
	$(Q)$(LD) -r -o $@.o $^
	$(Q)$(OBJCOPY) --wildcard --keep-global-symbol='cuda*' --keep-global-symbol='__cuda*' $@.o
	$(Q)rm -f $@ && ar rcsD $@ $@.o && rm $@.o
