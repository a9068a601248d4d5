# Sources are found by wildcard, so a new file needs no line here.
WARN := -Wall -Wextra -Wshadow -Wundef -Wconversion -Wmissing-prototypes -Wstrict-prototypes -Wvla
CFLAGS ?= -O2 -g
CFLAGS_release :=
CFLAGS_debug := -O0 -DGC_CHECK=1
CFLAGS_asan := -O1 -fsanitize=address,undefined -fno-omit-frame-pointer -DGC_CHECK=1
CFLAGS_tsan := -O1 -fsanitize=thread -DGC_CHECK=1
CFLAGS_cov := -O0 --coverage -DGC_CHECK=1
LDFLAGS_asan := -fsanitize=address,undefined
LDFLAGS_tsan := -fsanitize=thread
LDFLAGS_cov := --coverage
VERSION := $(shell cat VERSION)
ALL_CFLAGS := -std=gnu11 -fvisibility=hidden -fPIC -pthread $(WARN) $(if $(CI),-Werror) -I. -I$(OUT)/gen -isystem $(CUDA_HOME)/include \
	-DGC_VERSION='"$(VERSION)"' $(CFLAGS) $(CFLAGS_$(BUILD))
ALL_LDFLAGS := -pthread $(LDFLAGS_$(BUILD))

CORE_SRC := $(wildcard core/*.c core/*/*.c)
SHIM_SRC := $(wildcard shim/*.c shim/*.S)
TOOL_SRC := $(wildcard tools/*.c)
SIM_SRC := $(wildcard tests/simcuda/driver/*.c tests/simcuda/driver/*/*.c)
obj = $(patsubst %,$(OUT)/obj/%.o,$(basename $(1)))
