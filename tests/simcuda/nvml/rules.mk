# The stand-in NVML.
NVML_SO := $(SIM_OUT)/libnvidia-ml.so.1
SIM_TARGETS += $(NVML_SO)

$(NVML_SO): $(call obj,$(wildcard tests/simcuda/nvml/*.c))
	$(call say,LD)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) -shared $(ALL_LDFLAGS) $(LDFLAGS) -Wl,-soname,libnvidia-ml.so.1 \
		$(if $(filter asan tsan,$(BUILD)),,-Wl$(,)-z$(,)defs) -o $@ $^ -ldl
