# The simulated device, all in one folder: the driver, the stand-in runtime, NVML. Each part has its own rules.mk
# and adds what it makes to SIM_TARGETS.
SIM_OUT := $(OUT)/simcuda
include $(wildcard tests/simcuda/*/rules.mk)
