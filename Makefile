# Each target does all of its set-up in .venv; a second run redoes only what changed.
#   make demo    build the framework, the core and the CPU backend, show the installation, train the digits classifier
#   make test    lint, types and the whole test suite, JOBS=2 parts at a time; its parts are
#     make test-kit        the conformance kit on the CPU backend
#     make test-registry   injected faults, with full coverage of the registry
#     make test-sycl       the SYCL backend on simulated devices, in an environment with the 1.7 GB SYCL runtime
#     make test-deploy     programs without Python: AOTInductor and ExecuTorch
#     make test-docs       the documentation: every page, link and code block
#     make test-transformer   transformer_ops: its tests, and a part of the kit; all of it with TEST_WHOLE_KIT=1
#     make test-builds     what builds: wheels, the templates, the SDK's checks with compilers
#     make test-rest       everything else
#   make unit    tests without processes, compilers and network, in seconds
#   make quick   the test suite without its slow parts, in minutes
#   make nightly what takes longer: the whole kit on every template, plugin and simulated device, all mutants, 20,000 fuzzed
#                calls, other torches, whole audits; its result goes into benchmarks/results/nightly.json, which is committed
#   make fuzz    20,000 calls drawn at random and 200 compiled ones, of which make test takes a part
#   make docs    the documentation site, docs/_build/html/index.html
#   make bench   measure the CPU backend beside its alternatives, for about half an hour, into benchmarks/results;
#                RESULTS=cpu-xeon: into the files of another machine
#   make bench-transformer   the same for transformer_ops
#   make instructions   count instructions (needs valgrind) and make them the record that the tests compare with
#   make wheels  every wheel that can be built here, into dist/, with checks; TORCHES=all: native Autograd for PyTorch
#                2.10 to 2.15 from the headers of each, of which it downloads 4 GB the first time
#   make test-liger LIGER=path   Liger-Kernel's own tests, of a checkout, with transformer_ops in the place of its kernels
#   make test-third-party   the whole kit on every template and example plugin (an hour)
#   make test-release   the wheels in fresh environments of several Pythons, and built twice (15 minutes)
#   make test-torch     the wheels of `make wheels TORCHES=all` on PyTorch 2.10 to 2.15, with native Autograd and with that
#                in Python; downloads 12 GB (a quarter of an hour)
#   make test-newest    the kit and the tests of private names on the newest PyTorch that the index has, prereleases too,
#                in an environment of its own; NEWEST=torch==2.16.0 says which (docs/releasing.md)

PYTHON ?= python3
JOBS ?= 2
RESULTS ?= cpu
VENV := .venv
BIN := $(VENV)/bin
TORCH := torch==2.13.0
EXECUTORCH := executorch==1.5.1
TORCHVISION := torchvision==0.28.0
# The SYCL runtime takes 1.7 GB, so that backend is in an environment of its own, which only its tests make.
SYCL := .venv-sycl
BACKENDS := $(filter-out sycl,$(shell sed -n '/^\[backends/,/^directory/s|^directory = "backends/\(.*\)"|\1|p' plugins.toml))
sources_of = $(shell find $(1) -type f -not -path '$(1)/build/*' -not -path '$(1)/tests/*' -not -path '*.egg-info/*' -not -name '*.so' -not -name '*.pyi' -not -path '*/__pycache__/*')
FRAMEWORK_SOURCES := $(call sources_of,framework)
TOOLS_SOURCES := $(call sources_of,tools)
CORE_SOURCES := plugins.toml $(call sources_of,core)
TRANSFORMER := libraries/transformer
TRITON := $(TRANSFORMER)/backends/triton
# What a backend is compiled from, apart from its own folder; ninja compiles only what includes a header that changed.
SDK_SOURCES := $(shell find tools/src/opwheel_tools/include tools/src/opwheel_tools/build framework/src/opwheel/_build core/src/muladd/include -name '*.h' -o -name '*.cuh' -o -name '*.py' -o -name '*.cpp')
# Python compiles what is imported when it is imported; pip would compile all of PyTorch's modules, one after the other.
PIP_INSTALL := -m pip install --quiet --disable-pip-version-check --no-compile
unexport PYTHONDONTWRITEBYTECODE
INSTALL := $(BIN)/python $(PIP_INSTALL)
# Dots, where something is quiet for more than two seconds.
SHOW := @$(PYTHON) release/progress.py
# PyTorch deprecates jit.trace and jit.script, which the kit tests as long as they are there.
KIT_OF := -m pytest --pyargs opwheel_tools.testing -q -W ignore::DeprecationWarning --library
KIT := $(KIT_OF) muladd --backend
INTERPRETED := TRITON_INTERPRET=1 TRANSFORMER_OPS_BACKENDS=triton TRANSFORMER_OPS_REQUIRE=triton $(BIN)/python
SYCL_TEST := PYTHONPATH=tests MULADD_REQUIRE=sycl $(SYCL)/bin/python

.DEFAULT_GOAL := help
.PHONY: help demo announce-demo unit nightly test environments environment environment-sycl test-kit test-registry test-rest test-builds test-sycl test-deploy test-docs test-transformer test-liger test-third-party test-release test-torch test-newest test-this-torch fuzz quick quick-general quick-rest quick-kit quick-faults format docs bench bench-transformer instructions lint wheels clean tools
.SECONDEXPANSION:

help:
	@sed -n 's/^#   //p' $(firstword $(MAKEFILE_LIST))

demo: announce-demo $(VENV)/.demo
	$(BIN)/muladd doctor
	$(SHOW) $(BIN)/python examples/digits.py
	$(SHOW) $(BIN)/python examples/speed.py
	@echo
	@echo "shown: the installed backends, a classifier trained with muladd and with plain torch, and the speed of large results"
	@echo "means: the same results as plain torch; large results take a fraction of its time, small calls about as long"
	@echo "next:  docs/tutorial.md for a model of your own; $(BIN)/muladd bench --quick measures the rest on this machine"

announce-demo:
	@test -e $(VENV)/.demo || echo "make demo takes about two minutes and 1.2 GB, nearly all of it PyTorch, in $(VENV)"

# What `make lint` would refuse, corrected where a program can do it.
format: $(VENV)/.tools
	$(BIN)/ruff check --fix
	$(BIN)/ruff format
	$(BIN)/clang-format -i $(CXX_SOURCES)

# The longest ones first. They are independent of each other, and run on when one fails; each prints what it has to say
# when it ends. PyTorch's threads wait asleep: two parts share the cores.
PARTS := test-builds test-rest test-registry test-sycl test-transformer test-deploy test-docs test-kit
demo test quick unit: export OMP_WAIT_POLICY = passive
# Each kit starts with an empty cache of inductor's: whether the compiler knows the processor's instructions is not tried
# again, which takes 8 seconds.
test quick unit nightly: export TORCHINDUCTOR_VEC_ISA_OK = 1
test: environments
	@$(MAKE) --no-print-directory -k -j$(JOBS) --output-sync=target $(PARTS)

# Lanes: pip must not install into one environment twice at a time. All of them come first: make would go on with
# the next part where one has to wait for its environment, and the longest part would be the last.
environments: $(VENV)/.demo
	@$(MAKE) --no-print-directory -j$(JOBS) environment environment-sycl $(VENV)/other-torch
environment-sycl: $(SYCL)/.installed
environment:
	@$(MAKE) --no-print-directory -j1 lint $(VENV)/.exported $(VENV)/.runtime-executorch $(VENV)/.docs $(VENV)/.release

test-kit: $(VENV)/.installed
	$(BIN)/python $(KIT) cpu --matrix $(VENV)/matrix.json
	$(BIN)/python docs/coverage.py --check $(VENV)/matrix.json

REGISTRY_UNITS := $(addprefix tests/unit/test_,elf.py hooks.py distributions.py)
test-registry: $(VENV)/.installed
	$(BIN)/python -m coverage erase
	$(BIN)/python -m coverage run -m pytest tests/faults $(REGISTRY_UNITS) tests/general/test_cpp_calls.py
	$(BIN)/python -m coverage combine --quiet
	$(BIN)/python -m coverage report

BUILDS := tests/wheels tests/third_party tests/toolchain
test-builds: $(VENV)/.installed $(VENV)/.release $(VENV)/other-torch
	$(BIN)/python -m pytest $(BUILDS)

test-rest: $(VENV)/.installed
	TEST_FUZZ_EXAMPLES=2000 TEST_FUZZ_COMPILED=10 $(BIN)/python -m pytest $(addprefix --ignore ,$(BUILDS) $(addprefix tests/,faults deploy docs mutants release))

fuzz: $(VENV)/.installed
	$(BIN)/python -m pytest tests/interop tests/general/test_cpp_dtypes.py -k "fuzz or share"

# Objects of its own: each environment's flags name its own PyTorch, so ninja would build everything again each time.
$(SYCL)/% test-sycl: export DIST_EXTRA_CONFIG := $(CURDIR)/$(SYCL)/build.cfg

test-sycl: $(SYCL)/.installed
	$(SYCL_TEST) $(KIT) sycl -p simulated_xpu -m "not device_independent"
	$(SYCL_TEST) -m pytest -p simulated_xpu backends/sycl tests/wheels/test_wheels.py
	$(SYCL_TEST) -m pytest tests/wheels/test_sycl_rows.py

# What it builds stays in .venv/deploy; the models are exported again when muladd or the examples change.
test-deploy: $(VENV)/.installed $(VENV)/.runtime-executorch $(VENV)/.exported
	TEST_DEPLOY_FOLDER=$(VENV)/deploy $(BIN)/python -m pytest tests/deploy

# Fresh each time: Sphinx does not see that a docstring has changed, nor that a page of sources needs one more anchor.
docs: $(VENV)/.docs
	@rm -rf docs/_build
	$(BIN)/python -m sphinx --builder html --fail-on-warning --quiet docs docs/_build/html
	@echo "file://$(CURDIR)/docs/_build/html/index.html"

test-docs: docs
	$(BIN)/python -m pytest tests/docs

# Values and layouts in two dtypes, and the first derivatives: what depends most on the kernels. Triton's interpreter
# takes milliseconds for each row: values alone, no losses of hundreds of rows, and attention of short heads in float64.
# It keeps some bytes of each call, of any kernel: growth is not asked of it.
test-transformer: $(VENV)/.installed
	$(BIN)/python -m pytest -c pyproject.toml $(TRANSFORMER)/tests $(TRITON)/tests
	$(BIN)/python $(KIT_OF) transformer_ops --backend cpu $(if $(TEST_WHOLE_KIT),,-k "(values or layouts) and (float32 or bfloat16) or first or growth")
	$(INTERPRETED) -m pytest $(TRITON)/tests/test_kernels.py $(TRANSFORMER)/tests/test_operators.py $(TRANSFORMER)/tests/test_losses.py $(TRANSFORMER)/tests/test_memory.py -k "not many_rows and not fused_loss_in_16 and not (common_offset and float32) and not test_fused_linear and not (test_attention_is and (float and not float64 or 530 or 128)) and not (turns_by and (not float64 or 65 or 128)) and not (one_tensor and not float64)"
	$(INTERPRETED) $(KIT_OF) transformer_ops --backend triton -k $(if $(TEST_WHOLE_KIT),"not growth","values and bfloat16 or errors")

# Not the tests of DTensor, which start processes of their own for several GPUs.
LIGER_TESTS := rms_norm fused_add_rms_norm layer_norm swiglu geglu rope softmax cross_entropy fused_linear_cross_entropy
test-liger: $(VENV)/.installed
	@test -d "$(LIGER)/test/transformers" || { echo "say where a checkout of Liger-Kernel is: make test-liger LIGER=path"; exit 1; }
	cd $(LIGER) && PYTHONPATH=$(CURDIR)/$(TRANSFORMER)/tests/liger:src $(CURDIR)/$(BIN)/python -m pytest -p liger_plugin \
	  --import-mode=importlib -q -rs --tb=short -o log_cli=false -k "not dtensor" $(LIGER_TESTS:%=test/transformers/test_%.py)

# Of this, test-rest runs what takes seconds.
test-third-party: $(VENV)/.installed
	TEST_WHOLE_KIT=1 TEST_NIGHTLY=1 $(BIN)/python -m pytest tests/third_party

unit: $(VENV)/.unit
	$(BIN)/python -m pytest tests/unit -q

nightly: $(VENV)/.installed $(VENV)/.release $(VENV)/other-torch $(SYCL)/.installed
	@test -d dist || $(MAKE) --no-print-directory wheels
	$(BIN)/python -m tests.nightly

quick: $(VENV)/.installed
	@$(MAKE) --no-print-directory -k -j$(JOBS) --output-sync=target quick-rest quick-general quick-faults quick-kit

# One operator with its variants and its backward operator: the others have the same loops.
quick-kit:
	$(BIN)/python $(KIT) cpu -m "not compiles" --operators muladd,muladd_backward

# The other files of tests/faults start hundreds of processes each: make test-registry.
quick-faults:
	$(BIN)/python -m pytest -q tests/faults/test_faults.py

QUICK := $(BIN)/python -m pytest -q -m "not slow and not wheels and not nightly"
GENERAL := $(addprefix tests/,audit autograd general interop)
quick-general:
	$(QUICK) $(GENERAL)

quick-rest:
	$(QUICK) $(addprefix --ignore ,$(GENERAL) $(addprefix tests/,deploy docs faults mutants release wheels))

COMMIT = commit $$(git describe --always --dirty --abbrev=12)
bench: $(VENV)/.installed
	$(BIN)/muladd bench --label "$(COMMIT)" --json benchmarks/results/$(RESULTS).json --plot benchmarks/results/$(RESULTS).png
	$(BIN)/python -m benchmarks.summary

bench-transformer: $(VENV)/.installed
	$(BIN)/transformer_ops bench --label "$(COMMIT)" --json benchmarks/results/transformer.json --plot benchmarks/results/transformer.png
	$(BIN)/python -m benchmarks.summary

instructions: $(VENV)/.installed
	$(BIN)/python -m benchmarks.instructions --update

CXX_SOURCES = $(shell git ls-files -- '*.h' '*.cpp' '*.cu' '*.cuh')
lint: $(VENV)/.installed
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/python -m opwheel_tools.build.stubs muladd core/src/muladd/__init__.pyi
	$(BIN)/python -m opwheel_tools.build.stubs transformer_ops $(TRANSFORMER)/core/src/transformer_ops/__init__.pyi
	$(BIN)/mypy
	@$(BIN)/clang-format --dry-run --Werror $(CXX_SOURCES)

wheels: $(VENV)/.installed $(VENV)/.release
	$(BIN)/python -m release.build --out dist --python $(SYCL)/bin/python $(addprefix --torch ,$(TORCHES))
	$(BIN)/python -m twine check --strict dist/*.whl dist/*.tar.gz
	$(BIN)/python -m check_wheel_contents dist/muladd_*.whl dist/transformer_ops_*.whl # the metapackage has no modules
	$(BIN)/python -m check_wheel_contents --ignore W002,W009 dist/opwheel-*.whl # neighbouring PyTorchs' libraries may be equal
	$(BIN)/python -m release.audit dist/*.whl dist/variants/*.whl

# With the wheels of `make wheels`, or those of another machine that were put into dist/.
test-release: $(VENV)/.installed $(VENV)/.release
	@test -d dist || $(MAKE) --no-print-directory wheels
	$(BIN)/python -m pytest tests/release --ignore tests/release/test_torches.py

test-torch: $(VENV)/.installed $(VENV)/.release
	@test -d dist || $(MAKE) --no-print-directory wheels TORCHES=all
	$(BIN)/python -m pytest tests/release/test_torches.py

# An environment of its own, built as .venv is.
NEWEST ?= --pre torch
test-newest:
	@$(MAKE) --no-print-directory VENV=.venv-newest TORCH="$(NEWEST)" test-this-torch
test-this-torch: $(VENV)/.demo
	$(INSTALL) --group unit
	$(BIN)/python -m pytest -q tests/unit/test_torch_names.py tests/unit/test_torch_private.py
	$(BIN)/python $(KIT) cpu
	OPWHEEL_AUTOGRAD=python $(BIN)/python $(KIT) cpu

clean:
	rm -rf $(VENV) .venv-newest $(SYCL) dist docs/_build framework/build tools/build core/build metapackage/build backends/*/build libraries/*/core/build libraries/*/backends/*/build

# ---- set-up ----------------------------------------------------------------------------------------------------------

tools:
	@command -v $(PYTHON) >/dev/null || { echo "muladd: there is no $(PYTHON); install Python >= 3.10 or say make PYTHON=/path/to/python"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { echo "muladd: $(PYTHON) is older than 3.10; say make PYTHON=/path/to/a/newer/python"; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { echo "muladd: this Python has no venv module; install it (Debian: apt-get install python3-venv)"; exit 1; }
	@command -v $${CXX:-g++} >/dev/null || { echo "muladd: there is no C++ compiler $${CXX:-g++}; install g++ >= 11 (Debian: apt-get install g++) or set CXX"; exit 1; }

# What an environment needs before anything of this repository is built in it.
define ENVIRONMENT
@echo "$(@D): Python environment with $(TORCH) (half a minute, and the download)"
$(SHOW) $(PYTHON) -m venv $(@D)
$(SHOW) $(@D)/bin/python $(PIP_INSTALL) pip==26.3
$(SHOW) $(@D)/bin/python $(PIP_INSTALL) $(TORCH)
endef

$(VENV)/.dependencies: pyproject.toml framework/pyproject.toml | tools
	$(ENVIRONMENT)
	$(SHOW) $(INSTALL) --group build --group demo
	@touch $@

$(VENV)/.unit: pyproject.toml $(VENV)/.demo
	$(INSTALL) --group unit
	@touch $@

$(VENV)/.tools: pyproject.toml $(VENV)/.dependencies
	$(INSTALL) --group cuda --group test --group plugins --group models --group lint
	@touch $@

# A library to audit, in a folder of its own: it is built for CUDA, and where PyTorch is not every import of it raises.
$(VENV)/audit: pyproject.toml $(VENV)/.dependencies
	@rm -rf $@
	$(INSTALL) --no-deps --target $@ $(TORCHVISION)
	@touch $@

# PyTorch's build for CUDA, for the tests of the same wheels on another torch and on simulated devices: 5 GB.
$(VENV)/other-torch: tests/wheels/other_torch.py | $(VENV)/.dependencies
	@rm -rf $@ $@.new
	$(BIN)/python $< $@.new
	@mv $@.new $@
	@touch $@

$(SYCL)/.dependencies: pyproject.toml framework/pyproject.toml | tools
	$(ENVIRONMENT)
	$(SYCL)/bin/python $(PIP_INSTALL) --group build --group test --group sycl
	@printf '[build]\nbuild_base = build/sycl\n' > $(SYCL)/build.cfg
	@touch $@

# Headers keep their times, so that ninja compiles only what includes one that changed.
define KEEP_HEADER_TIMES
@cp -Rp $(1)/include $$($(@D)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/$(2)/
endef

# --no-build-isolation: an isolated build would download another torch, with its CUDA packages.
$(VENV)/.framework: %/.framework: $(FRAMEWORK_SOURCES) %/.dependencies
	@echo "opwheel: the framework (native Autograd for the installed torch: half a minute)"
	$(SHOW) $*/bin/python $(PIP_INSTALL) --no-build-isolation ./framework
	@ls $*/lib/python*/site-packages/opwheel/native/libopwheel_autograd_*.so >/dev/null || { echo "native Autograd was not built; the compiler's messages: cd framework && python setup.py build_ext"; exit 1; }
	@touch $@

$(VENV)/.opwheel-tools: %/.opwheel-tools: $(TOOLS_SOURCES) %/.framework
	@echo "opwheel-tools: C++ SDK, build, conformance kit"
	$(SHOW) $*/bin/python $(PIP_INSTALL) --no-build-isolation ./tools
	$(call KEEP_HEADER_TIMES,tools/src/opwheel_tools,opwheel_tools)
	@touch $@

$(VENV)/.core: %/.core: $(CORE_SOURCES) %/.opwheel-tools
	@echo "muladd-core: the operators' schemas and derivatives (one C++ file)"
	$(SHOW) $*/bin/python $(PIP_INSTALL) --no-build-isolation ./core
	$(call KEEP_HEADER_TIMES,core/src/muladd,muladd)
	@touch $@

# The same PyTorch is in both environments: what is compiled for one goes into the other as a wheel.
define INSTALL_FROM_THE_OTHER
@rm -rf $(@D)/wheels/$(1)
@env -u DIST_EXTRA_CONFIG $(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation --wheel-dir $(@D)/wheels/$(1) ./$(1)
@$(@D)/bin/python -m pip uninstall --quiet --yes $(2)
@$(@D)/bin/python $(PIP_INSTALL) $(@D)/wheels/$(1)/*.whl
endef

$(SYCL)/.framework: $(SYCL)/%: $(VENV)/% $(SYCL)/.dependencies
	$(call INSTALL_FROM_THE_OTHER,framework,opwheel)
	@touch $@

$(SYCL)/.opwheel-tools: $(SYCL)/%: $(VENV)/% $(SYCL)/.framework
	$(call INSTALL_FROM_THE_OTHER,tools,opwheel-tools)
	$(call KEEP_HEADER_TIMES,tools/src/opwheel_tools,opwheel_tools)
	@touch $@

$(SYCL)/.core: $(SYCL)/%: $(VENV)/% $(SYCL)/.opwheel-tools
	$(call INSTALL_FROM_THE_OTHER,core,muladd-core)
	$(call KEEP_HEADER_TIMES,core/src/muladd,muladd)
	@touch $@

$(VENV)/.transformer-core: %/.transformer-core: $(call sources_of,$(TRANSFORMER)/core) %/.opwheel-tools
	@echo "transformer-ops-core: the operators' schemas and derivatives"
	$(SHOW) $*/bin/python $(PIP_INSTALL) --no-build-isolation ./$(TRANSFORMER)/core
	$(call KEEP_HEADER_TIMES,$(TRANSFORMER)/core/src/transformer_ops,transformer_ops)
	@touch $@

$(VENV)/.transformer-cpu: $(call sources_of,$(TRANSFORMER)/backends/cpu) $(SDK_SOURCES) $(VENV)/.transformer-core
	@echo "transformer-ops-cpu: kernels for three instruction sets"
	$(SHOW) $(INSTALL) --no-build-isolation ./$(TRANSFORMER)/backends/cpu
	@touch $@

$(VENV)/.transformer-triton: $(call sources_of,$(TRITON)) $(VENV)/.transformer-core
	@echo "transformer-ops-triton: kernels in Python"
	$(SHOW) $(INSTALL) --no-build-isolation ./$(TRITON)
	@touch $@

$(VENV)/.backend-%: $$(call sources_of,backends/$$*) $(SDK_SOURCES) $(VENV)/.dependencies | $(VENV)/.core
	@echo "muladd-$*: kernels"
	$(SHOW) $(INSTALL) --no-build-isolation ./backends/$*
	@touch $@

$(VENV)/.backend-cuda: | $(VENV)/.tools

# --no-deps: ExecuTorch's other requirements, several hundred megabytes, are for backends that are not used here.
$(VENV)/.executorch: pyproject.toml $(VENV)/.tools
	$(INSTALL) --group deploy
	$(INSTALL) --no-deps $(EXECUTORCH)
	@touch $@

$(VENV)/.release: pyproject.toml $(VENV)/.tools
	$(INSTALL) --group release
	@touch $@

$(VENV)/.runtime-%: $$(call sources_of,backends/$$*) $(SDK_SOURCES) $(VENV)/.executorch | $(VENV)/.core
	$(INSTALL) --no-build-isolation --no-deps ./backends/$*
	@touch $@

$(VENV)/.exported: $(wildcard examples/digits.py examples/deployment/*.py examples/deployment/*/*.py) $(VENV)/.installed $(VENV)/.executorch
	@rm -f $(VENV)/deploy/*/.complete
	@touch $@

$(VENV)/.docs: pyproject.toml $(VENV)/.installed
	$(INSTALL) --group docs
	@touch $@

$(VENV)/.demo: $(VENV)/.core $(VENV)/.backend-cpu
	@touch $@

$(VENV)/.installed: $(VENV)/.tools $(VENV)/audit $(VENV)/.core $(BACKENDS:%=$(VENV)/.backend-%) $(VENV)/.transformer-cpu $(VENV)/.transformer-triton
	@touch $@

$(SYCL)/.installed: $(call sources_of,backends/sycl) $(SDK_SOURCES) $(SYCL)/.core $(wildcard tests/simulated_xpu/*)
	$(SYCL)/bin/python $(PIP_INSTALL) --no-build-isolation ./backends/sycl
	$(SYCL)/bin/python tests/simulated_xpu/__init__.py
	@touch $@
