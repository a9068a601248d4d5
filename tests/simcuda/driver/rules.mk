# The simulated driver: libcuda.so.1, and libcuda.so for the linker. Its symbols bind inside it, as the real driver's
# do: a library that interposes cuMemAlloc must not be reached from within.
SIM_DRIVER := $(SIM_OUT)/libcuda.so.1
# Complete only with the memory part.
SIM_TARGETS += $(if $(wildcard tests/simcuda/driver/memory_space.c),$(SIM_DRIVER) $(SIM_OUT)/libcuda.so)

$(SIM_DRIVER): $(call obj,$(SIM_SRC)) tests/simcuda/driver/libcuda.map tests/simcuda/driver/rules.mk
	$(call say,LD)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) -shared $(ALL_LDFLAGS) $(LDFLAGS) -Wl,-soname,libcuda.so.1 -Wl,-Bsymbolic -Wl,-z,nodelete \
		-Wl,--version-script,tests/simcuda/driver/libcuda.map $(if $(filter asan tsan,$(BUILD)),,-Wl$(,)-z$(,)defs) \
		-o $@ $(filter %.o,$^)

$(SIM_OUT)/libcuda.so: $(SIM_DRIVER)
	$(Q)ln -sf libcuda.so.1 $@
