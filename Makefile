# A fresh clone needs Python >= 3.11, a Rust toolchain, make, and access to PyPI and crates.io.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed

export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_QUIET := 1

# Each installs third-party tools or programs, and runs one script with them: make extra NAME=conformance.
EXTRAS := adapters check-servers conformance conformance-proxy deny documents gateways hosts old-sdk public-servers real-servers sbom workflows

.PHONY: help demo test test-all lint format bench docs extra extras $(EXTRAS) test-rust test-loom fuzz fuzz-media fuzz-asan miri bench-smoke bench-history soak lock recording wheel wheels sdist package-page check-dist try-wheel five-minutes clean
.DEFAULT_GOAL := demo

help:
	@sed -n 's/^\([a-z-]*\):.* ## /make \1: /p' Makefile

extra: $(or $(filter $(EXTRAS),$(NAME)),extras)

extras:
	@echo "make extra: expected NAME=… with one of $(EXTRAS), got '$(NAME)'" >&2; exit 2

# Exact versions for the tools, the tests and every extra; plain pip against PyPI installs them.
$(BIN)/maturin: requirements-dev.lock
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(BIN)/python -m pip install --quiet --requirement requirements-dev.lock
	touch $@

# The extension and the package, editable. Rebuilt when a Rust or project file changes.
$(STAMP): $(BIN)/maturin pyproject.toml Cargo.toml Cargo.lock $(shell find rust -type f 2>/dev/null)
	. $(BIN)/activate && maturin develop --release --quiet
	touch $@

demo: $(STAMP) ## plays music of the example server while it arrives
	$(BIN)/playhead demo

# `make test` is for every change, `make test-all` adds the tests marked `slow` and is what CI runs.
# Write bytecode whatever the environment says: otherwise each process started by a test compiles the package.
unexport PYTHONDONTWRITEBYTECODE
PYTEST := $(BIN)/python -m pytest -q -n logical --dist loadgroup

test: test-rust test-loom $(STAMP) ## the quick tests, for every change
	$(PYTEST) -m "not slow"

test-all: test-rust test-loom $(STAMP) ## all tests, as continuous integration runs them
	cargo test --locked --quiet --test frame_scan -- --ignored
	$(PYTEST)

test-rust:
	cargo test --locked --workspace --quiet

# Every interleaving of the threads of the pipe and the playout; in a target directory of its own, because its flags rebuild all.
test-loom:
	RUSTFLAGS="--cfg loom" cargo test --locked --quiet --release --target-dir target/loom --test loom_pipe --test loom_playout

# Any bytes into the parsers, the ring, the planner, Ogg and Vorbis, FUZZ_SECONDS for each target; a failing input is left in
# build/fuzz. What is found there is kept for the next run, beside the inputs in tests/fuzz/corpus, one packed file per target:
# python -m zipfile -c tests/fuzz/corpus/frame.zip build/fuzz/seeds/frame/* packs them again. For a long run:
# FUZZ_BUILD="--sanitizer none --no-trace-compares" has ten times the executions, and sees no access out of bounds.
FUZZ_SECONDS ?= 60
FUZZ_BUILD   ?=
FUZZ_CORE    := frame ring_writes planner ogg vorbis
FUZZ_PARSERS := tool_use frames message lines events exchange
FUZZ_INPUTS   = build/fuzz/corpus/$(1) build/fuzz/seeds/$(1)
FUZZ_BYTES   := 512
FUZZ_BYTES_ogg := 65536
FUZZ_BYTES_vorbis := 65536
FUZZ_LIMITS   = -max_total_time=$(FUZZ_SECONDS) -max_len=$(or $(FUZZ_BYTES_$(1)),$(FUZZ_BYTES)) -malloc_limit_mb=64 -timeout=10 -artifact_prefix=build/fuzz/ -print_final_stats=1 -verbosity=0

build/fuzz/atheris: $(STAMP)
	$(BIN)/python -m pip install --quiet --target build/fuzz/atheris atheris==3.0.0

# Damaged media, one run for each container and codec: 100 files for each of FUZZ_SECONDS, which take a quarter of that
# time. fuzz-asan runs miniaudio's C with AddressSanitizer (gcc).
FUZZ_MEDIA   := wav mp3 flac vorbis opus ogg-flac webm aac m4a alac
FUZZ_FILES   := $$(($(FUZZ_SECONDS) * 100))
MINIAUDIO    := $(shell sed -n 's/ *;.*//; /^miniaudio==/p' requirements-dev.lock)
ASAN_FLAGS   := -fsanitize=address -fno-omit-frame-pointer -g -O1

build/fuzz/asan: $(STAMP)
	CFLAGS="$(ASAN_FLAGS)" LDFLAGS="-fsanitize=address" $(BIN)/python -m pip install --quiet --no-cache-dir --no-deps --no-binary miniaudio --target build/fuzz/asan $(MINIAUDIO)

fuzz-asan: build/fuzz/asan
	for format in wav mp3 flac; do PYTHONPATH=build/fuzz/asan LD_PRELOAD=$$(cc -print-file-name=libasan.so) ASAN_OPTIONS=detect_leaks=0:quarantine_size_mb=16 \
		$(BIN)/python -m tests.fuzz.media $$format --count $(FUZZ_FILES) || exit 1; done

fuzz-media: $(STAMP)
	for format in $(FUZZ_MEDIA); do $(BIN)/python -m tests.fuzz.media $$format --count $(FUZZ_FILES) || exit 1; done

fuzz: $(STAMP) build/fuzz/atheris fuzz-media
	@cargo +nightly fuzz --version >/dev/null || { echo "make fuzz needs a nightly toolchain and cargo-fuzz (cargo install cargo-fuzz)" >&2; exit 3; }
	mkdir -p $(foreach target,$(FUZZ_CORE) $(FUZZ_PARSERS),build/fuzz/corpus/$(target))
	$(foreach target,$(FUZZ_CORE) $(FUZZ_PARSERS),$(BIN)/python -m zipfile -e tests/fuzz/corpus/$(target).zip build/fuzz/seeds/$(target) &&) true
	cargo +nightly fuzz build $(FUZZ_BUILD) --fuzz-dir tests/fuzz --target-dir target/fuzz
	$(foreach target,$(FUZZ_CORE),target/fuzz/*/release/$(target) $(call FUZZ_INPUTS,$(target)) $(call FUZZ_LIMITS,$(target)) &&) true
	$(foreach target,$(FUZZ_PARSERS),PYTHONPATH=build/fuzz/atheris $(BIN)/python -m tests.fuzz.parsers $(target) $(call FUZZ_INPUTS,$(target)) $(call FUZZ_LIMITS,$(target)) &&) true

# Undefined behaviour in the only unsafe code of the core: an interpreter runs the tests of the ring and the pipe.
miri:
	@cargo +nightly miri --version >/dev/null || { echo "make miri needs a nightly toolchain with miri and rust-src (rustup)" >&2; exit 3; }
	MIRIFLAGS=-Zmiri-disable-isolation PROPTEST_CASES=2 cargo +nightly miri test --locked --target-dir target/miri --test pipe_vs_model --test ranges_vs_bitmap

# The official MCP conformance suite: a Node package, pinned with the Node that it needs.
SUITE := build/conformance

$(SUITE)/.installed: tests/conformance/package.json tests/conformance/package-lock.json
	@command -v npm >/dev/null || { echo "make extra NAME=conformance needs npm (it comes with Node.js) and found none" >&2; exit 3; }
	mkdir -p $(SUITE)
	cp tests/conformance/package.json tests/conformance/package-lock.json $(SUITE)
	cd $(SUITE) && npm ci --no-audit --no-fund
	touch $@

conformance: $(STAMP) $(SUITE)/.installed
	$(BIN)/python -m tests.conformance.run_suite

# The suite's own server is in its repository only.
SUITE_COMMIT := c321dd3

$(SUITE)/server/node_modules:
	git clone --quiet https://github.com/modelcontextprotocol/conformance $(SUITE)/repository
	git -C $(SUITE)/repository archive $(SUITE_COMMIT) examples/servers/typescript | tar -x -C $(SUITE) --strip-components=2 --transform 's,typescript,server,'
	cd $(SUITE)/server && npm ci --no-audit --no-fund

conformance-proxy: $(STAMP) $(SUITE)/.installed $(SUITE)/server/node_modules
	$(BIN)/python -m tests.conformance.proxy_suite $(SUITE)/server

lint: $(STAMP) ## formatters, linters and type checkers
	cargo fmt --all --check
	cargo clippy --locked --workspace --all-targets -- -D warnings
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m mypy.stubtest playhead._core

format: $(BIN)/maturin ## formats the sources
	cargo fmt --all
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# Real MCP hosts, each in an environment of its own, because they need different versions of the SDK.
HOSTS := build/hosts
HOST_PACKAGES_langchain := langchain-mcp-adapters==0.3.2 langgraph==1.2.24 langchain-openai==1.7.4
HOST_PACKAGES_openai-agents := openai-agents==0.24.0
HOST_PACKAGES_pydantic-ai := pydantic-ai-slim[openai,mcp]==2.68.0
HOST_PACKAGES_fastmcp := fastmcp==4.2.3

$(HOSTS)/%/bin/python: $(STAMP)
	$(BIN)/uv venv --quiet $(HOSTS)/$*
	$(BIN)/uv pip install --quiet --python $@ $(HOST_PACKAGES_$*)

$(HOSTS)/ai-sdk/node_modules:
	@command -v npm >/dev/null || { echo "make extra NAME=hosts needs npm (it comes with Node.js) and found none" >&2; exit 3; }
	mkdir -p $(HOSTS)/ai-sdk && cd $(HOSTS)/ai-sdk && npm install --no-audit --no-fund ai@6.0.326 @ai-sdk/mcp@1.0.102 @ai-sdk/openai-compatible@2.0.92

# The Inspector needs Node 22; the package `node` has it.
$(HOSTS)/clients/node_modules: $(HOSTS)/ai-sdk/node_modules
	mkdir -p $(HOSTS)/clients && cd $(HOSTS)/clients && npm install --no-audit --no-fund node@22.23.3 @modelcontextprotocol/sdk@1.32.2 @modelcontextprotocol/inspector@2.12.0

hosts: $(foreach name,langchain openai-agents pydantic-ai fastmcp,$(HOSTS)/$(name)/bin/python) $(HOSTS)/ai-sdk/node_modules $(HOSTS)/clients/node_modules
	$(BIN)/python -m pytest -q tests/hosts

# Third-party servers and clients: each script says what it installs and does.
real-servers public-servers check-servers old-sdk gateways: $(STAMP)
	$(BIN)/python -m tests.conformance.$(subst -,_,$@)

# A second JSON Schema validator, clients generated from the OpenAPI document by third-party tools, and pyright.
documents: $(STAMP)
	$(BIN)/python -m tests.documents.tools
	$(BIN)/python -m pytest -q tests/documents

# The voice stacks that playhead has adapters for, and the tests of the adapters in them.
adapters: $(STAMP)
	$(BIN)/python -m tests.adapters.install

# Plays with connect and disconnect, and hours of a simulated clock; what the processes hold must not grow. More of them
# take a while: SOAK_PLAYS=1000, SOAK_HOURS=100.
SOAK_PLAYS ?= 100
SOAK_HOURS ?= 5

soak: $(STAMP)
	$(BIN)/python -m benches.soak --plays $(SOAK_PLAYS)
	$(BIN)/python -m benches.soak --hours $(SOAK_HOURS)

bench: $(STAMP) ## the benchmarks
	cargo bench --locked
	$(BIN)/python -m benches.run
	$(BIN)/python -m benches.byte_path

bench-smoke: $(STAMP)
	cargo bench --locked -- --test
	$(BIN)/python -m benches.run --smoke
	$(BIN)/python -m benches.byte_path --smoke

# Ratios beside those of earlier runs; status 1 if one is 15 % worse. A bound that is missed stops nothing here.
bench-history: $(STAMP)
	-$(BIN)/python -m benches.run
	$(BIN)/python -m benches.history

# The documentation as a site, in build/docs/site. Its tools have an environment of their own; docstrings are read, not
# imported. Without --quiet: it would hide the warnings from --strict too.
build/docs/bin/mkdocs: docs/requirements.txt
	$(PYTHON) -m venv build/docs
	build/docs/bin/python -m pip install --quiet --requirement docs/requirements.txt
	touch $@

docs: build/docs/bin/mkdocs $(STAMP) ## the documentation as a site
	PATH="$(CURDIR)/$(BIN):$$PATH" playhead check 'playhead serve audio --mixer memory' full --report build/docs/check-report.html
	PATH="$(CURDIR)/build/docs/bin:$$PATH" NO_MKDOCS_2_WARNING=1 build/docs/bin/mkdocs build --strict

# The terminal at the top of the README. It needs a sound device; a null sink of PulseAudio is one.
recording: build/docs/bin/mkdocs $(STAMP)
	build/docs/bin/python docs/recording.py $(CURDIR)/$(BIN) > build/docs/recording.svg
	mv build/docs/recording.svg docs/recording.svg

# Licenses, sources, duplicates and known vulnerabilities of the crates. The last needs the advisory database from
# GitHub; without it: make extra NAME=deny DENY="bans licenses sources".
DENY := advisories bans licenses sources

build/deny/bin/cargo-deny:
	cargo install --locked --quiet --version 0.20.2 --root build/deny cargo-deny

deny: build/deny/bin/cargo-deny
	build/deny/bin/cargo-deny --locked check $(DENY)

# Linters of the hosted workflows: actionlint by the Go toolchain, zizmor from PyPI.
build/workflows/bin/zizmor:
	$(PYTHON) -m venv build/workflows
	build/workflows/bin/python -m pip install 'zizmor==1.32.0'

build/workflows/bin/actionlint:
	@command -v go >/dev/null || { echo "make extra NAME=workflows needs a Go toolchain for actionlint and found none" >&2; exit 3; }
	GOBIN=$(CURDIR)/build/workflows/bin go install github.com/rhysd/actionlint/cmd/actionlint@v1.7.12

workflows: build/workflows/bin/zizmor build/workflows/bin/actionlint
	build/workflows/bin/actionlint
	build/workflows/bin/zizmor --offline .github docs/examples/github-actions.yml

# Resolve the newest versions that pyproject.toml allows, for every supported Python and platform.
lock: $(BIN)/maturin
	$(BIN)/uv pip compile pyproject.toml --quiet --upgrade --group dev --all-extras --universal \
		--python-version 3.11 --custom-compile-command "make lock" --output-file requirements-dev.lock

# A wheel for this machine. zopfli, from PyPI, compresses it again.
wheel: build/wheels/bin/maturin
	rm -rf build/wheels/out
	PATH="$(CURDIR)/build/wheels/bin:$$PATH" maturin build --out build/wheels/out
	build/wheels/bin/python -m tests.wheels.recompress build/wheels/out/*.whl
	mkdir -p dist
	mv build/wheels/out/*.whl dist

sdist: $(BIN)/maturin
	. $(BIN)/activate && maturin sdist --out dist

# Writes the repository and the contact into this checkout, which only a release does.
package-page: $(BIN)/maturin
	$(BIN)/python -m tests.wheels.package_page

# What a registry would refuse or not render.
check-dist: build/wheels/bin/maturin
	build/wheels/bin/twine check --strict dist/*

# Wheels for every Linux; `make wheels TARGETS=aarch64-unknown-linux-gnu` builds one. zig comes from PyPI.
TARGETS :=

build/wheels/bin/maturin:
	$(PYTHON) -m venv build/wheels
	build/wheels/bin/python -m pip install 'maturin[zig]==1.16.0' 'ziglang==0.17.1' 'auditwheel==6.8.2' 'zopflipy==1.14' 'twine==7.0.0'
	touch $@

wheels: build/wheels/bin/maturin
	PATH="$(CURDIR)/build/wheels/bin:$$PATH" build/wheels/bin/python -m tests.wheels.build $(TARGETS)

# Every program and command of the documentation from a wheel, in an environment per set of extras; prints the table.
try-wheel: $(STAMP)
	$(BIN)/python -m tests.wheels.try_wheel

# From an empty environment to audio, to an assistant that is interrupted and to a checked server, with the README's
# commands; prints a table of seconds.
five-minutes: $(STAMP)
	$(BIN)/python -m tests.wheels.five_minutes

# What an installation with all extras consists of, as CycloneDX. The crates are listed in each wheel.
sbom:
	$(PYTHON) -m venv build/sbom/tool build/sbom/env
	build/sbom/tool/bin/python -m pip install 'cyclonedx-bom==7.5.0'
	build/sbom/env/bin/python -m pip install --constraint requirements-dev.lock '.[all]'
	build/sbom/tool/bin/cyclonedx-py environment build/sbom/env/bin/python --pyproject pyproject.toml --output-file build/sbom/playhead.cdx.json

clean:
	cargo clean
	rm -rf $(VENV) dist
