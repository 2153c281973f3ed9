# Each target does all of its set-up in .venv; a second run redoes only what changed. `make help` lists the targets.

PYTHON ?= python3
JOBS ?= 3
RESULTS ?= cpu
DIST := dist$(addprefix /,$(PLATFORM))
VENV := .venv
BIN := $(VENV)/bin
# SYCL: its runtime takes 1.7 GB. TORCH: what pip installs, if not what release/environments.py says.
SYCL := .venv-sycl
TORCH :=
TRANSFORMER := libraries/transformer
TRITON := $(TRANSFORMER)/backends/triton
unexport PYTHONDONTWRITEBYTECODE
# The first shows dots where something is quiet for more than two seconds; the other installs what has changed.
SHOW := @$(PYTHON) release/progress.py
ENVIRONMENT = @$(PYTHON) release/environments.py $(if $(TORCH),--torch="$(TORCH)")
# PyTorch deprecates jit.trace and jit.script, which the kit tests as long as they are there.
KIT_OF := -m pytest --pyargs opwheel_tools.testing -q -W ignore::DeprecationWarning --library
KIT := $(KIT_OF) muladd --backend
INTERPRETED := TRITON_INTERPRET=1 TRANSFORMER_OPS_BACKENDS=triton TRANSFORMER_OPS_REQUIRE=triton $(BIN)/python
SYCL_TEST := PYTHONPATH=tests MULADD_REQUIRE=sycl $(SYCL)/bin/python
.PHONY: $(shell sed -n 's/^\([a-z0-9-]*\):.*/\1/p' Makefile) FORCE

help:
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "make %-17s %s\n", $$1, $$2 }' Makefile
	@echo "* a part of make test"

demo: $(VENV)/.demo ## install muladd's CPU backend (two minutes, 1.2 GB), show what is there, train a classifier of digits
	$(BIN)/muladd doctor
	$(SHOW) $(BIN)/python examples/digits.py
	$(SHOW) $(BIN)/python examples/speed.py
	@printf '\n%s\n' "shown: the installed backends, a classifier trained with muladd and with plain torch, and the speed of large results"
	@echo "means: the same results as plain torch; large results take a fraction of its time, small calls about as long"
	@echo "next:  docs/tutorial.md for a model of your own; $(BIN)/muladd bench --quick measures the rest on this machine"

format: $(VENV)/.tools ## what lint would refuse, corrected where a program can do it
	$(BIN)/ruff check --fix && $(BIN)/ruff format
	$(BIN)/clang-format -i $(CXX_SOURCES)

# The longest first; independent of each other. One more than two cores have, as some wait; PyTorch's threads wait asleep.
PARTS := test-registry test-builds test-rest test-dispatch test-transformer test-sycl test-deploy test-docs test-kit
demo test quick unit: export OMP_WAIT_POLICY = passive
# Whether the compiler knows the processor's instructions, which takes 8 seconds, is not tried in each kit's empty cache.
test quick unit nightly: export TORCHINDUCTOR_VEC_ISA_OK = 1
test: environments ## lint, types and the whole test suite: the parts with a star, JOBS=3 at a time
	@$(MAKE) --no-print-directory -k -j$(JOBS) --output-sync=target HAS_ENVIRONMENTS=1 $(PARTS)

environments: $(VENV)/.demo # first: where a part has to wait make goes on with the next, and the longest would be the last
	@$(MAKE) --no-print-directory -j$(JOBS) environment $(SYCL)/.installed $(VENV)/other-torch
environment: lint
	$(ENVIRONMENT) $(VENV) exported runtime-executorch docs release

test-kit: $(VENV)/.installed ## * the conformance kit on the CPU backend
	$(BIN)/python $(KIT) cpu --matrix $(VENV)/matrix.json
	$(BIN)/python docs/coverage.py --check $(VENV)/matrix.json

REGISTRY := faults $(addprefix unit/test_,elf.py hooks.py distributions.py) $(addprefix non_elementwise/test_,cpp_calls.py special_tensors.py)
test-registry: $(VENV)/.installed ## * injected faults, with full coverage of the registry
	$(BIN)/python -m tests.covered registry $(addprefix tests/,$(REGISTRY))

BUILDS := tests/wheels tests/third_party tests/toolchain
test-builds: $(VENV)/.installed $(VENV)/.release $(VENV)/other-torch ## * what builds: wheels, the templates, the SDK's checks with compilers
	$(BIN)/python -m pytest $(BUILDS)

DISPATCH := $(addprefix tests/,unit non_elementwise autograd)
test-rest test-dispatch: export TEST_FUZZ_EXAMPLES = 2000
test-rest test-dispatch: export TEST_FUZZ_COMPILED = 10
test-rest: $(VENV)/.installed ## * every other test
	$(BIN)/python -m pytest $(addprefix --ignore ,$(BUILDS) $(DISPATCH) $(addprefix tests/,faults deploy docs mutants release))
test-dispatch: $(VENV)/.installed ## * operators of every class and derivatives, with the coverage of dispatch
	$(BIN)/python -m tests.covered dispatch $(DISPATCH) $(patsubst %,--ignore=tests/%,$(filter non_elementwise/%,$(REGISTRY)))
fuzz: $(VENV)/.installed ## 20,000 calls drawn at random and 200 compiled ones, of which test-rest takes a part
	$(BIN)/python -m pytest tests/interop tests/non_elementwise/test_cpp_dtypes.py -k "fuzz or share"

# Objects of its own: each environment's flags name its own PyTorch, so ninja would build everything again each time.
test-sycl: export DIST_EXTRA_CONFIG := $(CURDIR)/$(SYCL)/build.cfg
test-sycl: $(SYCL)/.installed ## * the SYCL backend on simulated devices, in an environment with the 1.7 GB SYCL runtime
	$(SYCL_TEST) $(KIT) sycl -p simulated_xpu -m "not device_independent"
	$(SYCL_TEST) -m pytest -p simulated_xpu backends/sycl tests/wheels/test_wheels.py
	$(SYCL_TEST) -m pytest tests/wheels/test_sycl_rows.py

test-deploy: $(VENV)/.installed $(VENV)/.runtime-executorch $(VENV)/.exported ## * programs without Python: AOTInductor and ExecuTorch
	TEST_DEPLOY_FOLDER=$(VENV)/deploy $(BIN)/python -m pytest tests/deploy

docs: $(VENV)/.docs ## the documentation site, docs/_build/html/index.html
	@rm -rf docs/_build # Sphinx does not see that a docstring has changed, nor that a page of sources needs one more anchor
	$(BIN)/python -m sphinx --builder html --fail-on-warning --quiet docs docs/_build/html
	@echo "file://$(CURDIR)/docs/_build/html/index.html"
test-docs: docs ## * the documentation: every page, link and code block
	$(BIN)/python -m pytest tests/docs

# With Triton's interpreter: values alone, no first calls in another process (--fast), no growth (each call keeps some bytes).
test-transformer: $(VENV)/.installed ## * transformer_ops: its tests, and a part of the kit; all of the kit with TEST_WHOLE_KIT=1
	$(BIN)/python -m pytest -c pyproject.toml $(TRANSFORMER)/tests $(TRITON)/tests
	$(BIN)/python $(KIT_OF) transformer_ops --backend cpu $(if $(TEST_WHOLE_KIT),,-k "(values or layouts) and (float32 or bfloat16) or first or growth or (invariance and bfloat16 and not compiled)")
	$(INTERPRETED) -m pytest -c pyproject.toml $(TRITON)/tests/test_kernels.py $(TRITON)/tests/test_invariance.py $(TRANSFORMER)/tests/test_operators.py $(TRANSFORMER)/tests/test_losses.py $(TRANSFORMER)/tests/test_memory.py
	$(INTERPRETED) $(KIT_OF) transformer_ops --backend triton -k $(if $(TEST_WHOLE_KIT),"not growth and not invariance","values and bfloat16 or errors" --fast)

test-time-machine: $(VENV)/.installed ## CHECKOUTS=path: the judge on public fixes of wrong results, and on the commits before them
	$(BIN)/python -m tests.time_machine $(or $(CHECKOUTS),$(error say where the clones are: make test-time-machine CHECKOUTS=path))
	$(BIN)/python -m tests.time_machine.by_hand $(CHECKOUTS)
LIGER_TESTS := rms_norm fused_add_rms_norm layer_norm swiglu geglu rope softmax cross_entropy fused_linear_cross_entropy # not DTensor's, which start processes for several GPUs
test-liger: $(VENV)/.installed ## LIGER=path: the tests of Liger-Kernel's sources of the installed release, with transformer_ops in the place of its kernels
	@test -d "$(LIGER)/test/transformers" || { echo "say where sources of Liger-Kernel are: make test-liger LIGER=path"; exit 1; }
	cd $(LIGER) && PYTHONPATH=$(CURDIR)/$(TRANSFORMER)/tests/liger $(CURDIR)/$(BIN)/python -m pytest -p liger_plugin \
	  --import-mode=importlib -q -rs --tb=short -o log_cli=false -o pythonpath=. -k "not dtensor" $(LIGER_TESTS:%=test/transformers/test_%.py)
test-third-party: $(VENV)/.installed ## the whole kit on every template and example plugin (an hour)
	TEST_WHOLE_KIT=1 TEST_NIGHTLY=1 $(BIN)/python -m pytest tests/third_party

unit: $(VENV)/.unit ## tests without processes, compilers and network, in seconds
	$(BIN)/python -m pytest tests/unit -q
nightly: $(VENV)/.installed $(VENV)/.release $(VENV)/other-torch $(SYCL)/.installed ## what takes longer (tests/nightly.py); its result goes into benchmarks/results/nightly.json
	@test -d dist || $(MAKE) --no-print-directory wheels
	-@test -d dist/aarch64 || $(MAKE) --no-print-directory wheels PLATFORM=aarch64 TORCHES=2.10.0
	$(BIN)/python -m tests.nightly
quick: $(VENV)/.installed ## the test suite without its slow parts, in minutes
	@$(MAKE) --no-print-directory -k -j$(JOBS) --output-sync=target quick-rest quick-operators quick-faults quick-kit

quick-kit: # one operator with its variants and its backward operator: the others have the same loops
	$(BIN)/python $(KIT) cpu -m "not compiles" --operators muladd,muladd_backward
quick-faults:
	$(BIN)/python -m pytest -q tests/faults/test_faults.py
QUICK := $(BIN)/python -m pytest -q -m "not slow and not wheels and not nightly"
OPERATORS := $(addprefix tests/,audit autograd interop judge non_elementwise)
quick-operators:
	$(QUICK) $(OPERATORS)
quick-rest:
	$(QUICK) $(addprefix --ignore ,$(OPERATORS) $(addprefix tests/,deploy docs faults mutants release wheels))

COMMIT = commit $$(git describe --always --dirty --abbrev=12)
bench: $(VENV)/.installed ## the CPU backend against its alternatives, half an hour, into benchmarks/results/cpu.json (RESULTS=cpu)
	$(BIN)/muladd bench --label "$(COMMIT)" --json benchmarks/results/$(RESULTS).json --plot benchmarks/results/$(RESULTS).png
	$(BIN)/python -m benchmarks.summary
bench-allocators: $(VENV)/.installed ## new results beside allocators that keep memory (Debian: libjemalloc2, libtcmalloc-minimal4), five minutes, into benchmarks/results/allocators.json
	$(BIN)/muladd bench --only new --only backward --skip compile --skip custom_op --label "$(COMMIT)" --json benchmarks/results/allocators.json
	$(BIN)/python -m benchmarks.summary
bench-transformer: $(VENV)/.installed ## the same for transformer_ops
	$(BIN)/transformer_ops bench --label "$(COMMIT)" --json benchmarks/results/transformer.json --plot benchmarks/results/transformer.png
	$(BIN)/python -m benchmarks.summary
bench-sweep: $(VENV)/.installed ## where transformer_ops is slower than PyTorch, an hour, into benchmarks/results/transformer-sweep.json; COMPILERS="inductor zentorch": where those are installed
	$(BIN)/transformer_ops bench --sweep $(addprefix --compiled-by ,$(or $(COMPILERS),inductor)) --label "$(COMMIT)" --json benchmarks/results/transformer-sweep.json --plot benchmarks/results/transformer-sweep.png
	$(BIN)/python -m benchmarks.summary
instructions: $(VENV)/.installed ## count instructions (needs valgrind) and make them the record that the tests compare with
	$(BIN)/python -m benchmarks.instructions --update

CXX_SOURCES = $(shell git ls-files -- '*.h' '*.cpp' '*.cu' '*.cuh')
lint: $(VENV)/.installed ## ruff, mypy, clang-format and clang-tidy
	$(BIN)/ruff check && $(BIN)/ruff format --check
	$(BIN)/python -m opwheel_tools.build.stubs muladd core/src/muladd/__init__.pyi
	$(BIN)/python -m opwheel_tools.build.stubs transformer_ops $(TRANSFORMER)/core/src/transformer_ops/__init__.pyi
	$(BIN)/mypy
	@$(BIN)/clang-format --dry-run --Werror $(CXX_SOURCES)
	$(BIN)/python release/tidy.py

wheels: $(VENV)/.installed $(VENV)/.release ## every wheel that can be built here, checked, into dist/; TORCHES=all: for PyTorch 2.10 to 2.15 (4 GB once); PLATFORM=aarch64; CUDA=12,13: for both, with an nvcc 12 in CUDA_HOME
	$(BIN)/python -m release.build --out $(DIST) --python $(SYCL)/bin/python $(addprefix --torch ,$(TORCHES)) $(addprefix --platform ,$(PLATFORM)) $(addprefix --cuda ,$(CUDA))
	$(BIN)/python -m twine check --strict $(DIST)/*.whl $(DIST)/*.tar.gz
	$(BIN)/python -m check_wheel_contents $(DIST)/muladd_*.whl $(DIST)/transformer_ops_*.whl # the metapackage has no modules
	$(BIN)/python -m check_wheel_contents --ignore W002,W009 $(DIST)/opwheel-*.whl # neighbouring PyTorchs' libraries may be equal
	$(BIN)/python -m release.audit $(DIST)

test-release: $(VENV)/.installed $(VENV)/.release ## the wheels in fresh environments of several Pythons, and built twice (15 minutes)
	@test -d dist || $(MAKE) --no-print-directory wheels
	$(BIN)/python -m pytest tests/release $(addprefix --ignore tests/release/test_,torches.py aarch64.py interpreters.py)
test-torch: $(VENV)/.installed $(VENV)/.release ## the wheels of `make wheels TORCHES=all` on PyTorch 2.10 to 2.15 (a quarter of an hour, 12 GB)
	@test -d dist || $(MAKE) --no-print-directory wheels TORCHES=all
	$(BIN)/python -m pytest tests/release/test_torches.py
matrix: $(VENV)/.installed $(VENV)/.release ## all wheels for every platform, PyTorch and Python that there are here, audited, installed and run, and what is missing
	$(BIN)/python -m release.matrix
test-aarch64: $(VENV)/.installed $(VENV)/.release ## the wheels of `make wheels PLATFORM=aarch64 TORCHES=2.10.0`, emulated: kits and a training
	@test -d dist/aarch64 || $(MAKE) --no-print-directory wheels PLATFORM=aarch64 TORCHES=2.10.0
	$(BIN)/python -m pytest tests/release/test_aarch64.py
interpreters: $(VENV)/.installed ## CPython 3.14 and 3.15, on which test-release installs the wheels, in minutes; INTERPRETERS="3.14t" names others
	$(BIN)/python -m release.interpreters $(or $(INTERPRETERS),3.14 3.15)
test-interpreter: $(VENV)/.installed $(VENV)/.release ## the wheels of `make wheels TORCHES=all` on a CPython that is built first, INTERPRETER=3.14t: kits, threads, faults (6 GB once)
	TEST_INTERPRETER=$(or $(INTERPRETER),3.14t) $(BIN)/python -m pytest tests/release/test_interpreters.py
test-newest: ## the kit on the newest PyTorch, prereleases too; NEWEST=torch==2.16.0 says which (docs/releasing.md)
	@$(MAKE) --no-print-directory VENV=.venv-newest TORCH="$(or $(NEWEST),--pre torch)" test-this-torch
test-this-torch: $(VENV)/.unit
	$(BIN)/python -m pytest -q tests/unit/test_torch_names.py tests/unit/test_torch_private.py
	$(BIN)/python $(KIT) cpu
	OPWHEEL_AUTOGRAD=python $(BIN)/python $(KIT) cpu
clean: ## remove the environments and what was built
	rm -rf $(VENV) .venv-newest $(SYCL) dist docs/_build framework/build tools/build core/build metapackage/build backends/*/build libraries/*/core/build libraries/*/backends/*/build

tools:
	@command -v $(PYTHON) >/dev/null || { echo "muladd: there is no $(PYTHON); install Python >= 3.10 or say make PYTHON=/path/to/python"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { echo "muladd: $(PYTHON) is older than 3.10; say make PYTHON=/path/to/a/newer/python"; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { echo "muladd: this Python has no venv module; install it (Debian: apt-get install python3-venv)"; exit 1; }
	@command -v $${CXX:-g++} >/dev/null || { echo "muladd: there is no C++ compiler $${CXX:-g++}; install g++ >= 11 (Debian: apt-get install g++) or set CXX"; exit 1; }

ifndef HAS_ENVIRONMENTS
$(VENV)/.%: tools FORCE
	$(ENVIRONMENT) $(VENV) $*
$(VENV)/audit $(VENV)/other-torch: tools FORCE
	$(ENVIRONMENT) $(VENV) $(@F)
$(SYCL)/.%: tools FORCE
	$(ENVIRONMENT) $(SYCL) --from $(VENV) $*
endif
