# The exporter for Prometheus: needs libmicrohttpd (scripts/deps.sh exporter).
EXPORTER := $(OUT)/engines/exporter/gpucache-exporter
EXPORTER_SRC := $(wildcard tools/engines/exporter/*.c)
# What it has of the tool: the readings of `gpucache top`, without its screen.
EXPORTER_TOOL_SRC := $(filter-out tools/live/cmd_% tools/live/top_screen.c tools/live/top_terminal.c tools/live/top_prompt.c tools/base/symbols.c, \
	$(wildcard tools/base/*.c tools/node/*.c tools/live/*.c))
$(call obj,$(EXPORTER_SRC)): $(OUT)/obj/%.o: %.c $(FLAGS_FILE) | generated
	$(call say,CC)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(BASE_CFLAGS) $(CFLAGS) $(CFLAGS_$(BUILD)) -MMD -MP -c -o $@ $<
$(EXPORTER): $(call obj,$(EXPORTER_SRC) $(EXPORTER_TOOL_SRC)) $(CORE_ARCHIVE)
	$(call say,LD)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(ALL_LDFLAGS) $(LDFLAGS) -Wl,--as-needed -Wl,--gc-sections -o $@ $(filter %.o,$^) $(CORE_ARCHIVE) -lmicrohttpd
