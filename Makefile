# libgpucache. `make help` lists the targets.
CUDA_HOME ?= /usr/local/cuda
CC ?= gcc
BUILD ?= release
OUT := $(if $(filter release,$(BUILD)),build,build/$(BUILD))
include scripts/rules.mk
