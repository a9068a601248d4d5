# The SPANK plugin, for the Slurm whose headers are installed (libslurm-dev): `make slurm`. SLURM_CFLAGS names others.
SLURM_CFLAGS ?=
SLURM_PLUGIN_DIR ?= $(LIBDIR)/slurm-wlm
SLURM_SRC := $(wildcard tools/engines/slurm/*.c)
SLURM_PLUGIN := $(OUT)/engines/slurm/spank_gpucache.so
# A path of the library as plugstack.conf would name it.
$(call obj,$(SLURM_SRC)): $(OUT)/obj/%.o: %.c $(FLAGS_FILE) | generated
	$(call say,CC)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(BASE_CFLAGS) $(CFLAGS) $(CFLAGS_$(BUILD)) $(SLURM_CFLAGS) -DSLURM_LIBRARY='"$(LIBDIR)/libgpucache.so"' -MMD -MP -c -o $@ $<

# Slurm's own functions are found in the program that loads it. All but what it looks up stays inside.
$(SLURM_PLUGIN): $(call obj,$(SLURM_SRC)) $(CORE_ARCHIVE)
	$(call say,LD)
	$(Q)mkdir -p $(@D)
	$(Q)echo '{ global: slurm_spank_*; plugin_name; plugin_type; plugin_version; spank_plugin_version; local: *; };' > $(OUT)/gen/slurm.map
	$(Q)$(CC) -shared $(ALL_LDFLAGS) $(LDFLAGS) -Wl,--version-script,$(OUT)/gen/slurm.map -Wl,--gc-sections -Wl,-z,now -Wl,-z,relro \
		-Wl,--as-needed -o $@ $(call obj,$(SLURM_SRC)) $(CORE_ARCHIVE)
