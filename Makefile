# Everything a fresh clone needs: Python >= 3.11, a Rust toolchain, make, and the package registries.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed

export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_QUIET := 1

.PHONY: demo test test-rust test-python real-servers check-servers old-sdk conformance documents lint format bench bench-smoke wheel clean
.DEFAULT_GOAL := demo

$(BIN)/maturin: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(BIN)/python -m pip install --quiet --group dev
	touch $@

# The extension and the package, editable. Rebuilt when a Rust or project file changes.
$(STAMP): $(BIN)/maturin Cargo.toml Cargo.lock $(shell find rust -type f 2>/dev/null)
	. $(BIN)/activate && maturin develop --release --quiet
	touch $@

demo: $(STAMP)
	$(BIN)/playhead demo

test: test-rust test-python

test-rust:
	cargo test --locked --workspace --quiet
	RUSTFLAGS="--cfg loom" cargo test --locked --quiet --release --target-dir target/loom --test loom_pipe

test-python: $(STAMP)
	$(BIN)/python -m pytest -q

# The official MCP conformance suite: a Node package, pinned with the Node that it needs.
SUITE := build/conformance

$(SUITE)/.installed: tests/conformance/package.json tests/conformance/package-lock.json
	@command -v npm >/dev/null || { echo "make conformance needs npm (it comes with Node.js) and found none" >&2; exit 3; }
	mkdir -p $(SUITE)
	cp tests/conformance/package.json tests/conformance/package-lock.json $(SUITE)
	cd $(SUITE) && npm ci --no-audit --no-fund
	touch $@

conformance: $(STAMP) $(SUITE)/.installed
	$(BIN)/python -m tests.conformance.run_suite

lint: $(STAMP)
	cargo fmt --all --check
	cargo clippy --locked --workspace --all-targets -- -D warnings
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m mypy.stubtest playhead._core

format: $(BIN)/maturin
	cargo fmt --all
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

real-servers: $(STAMP)
	$(BIN)/python -m tests.conformance.real_servers

# `playhead check` of servers that nobody here wrote, against a list of their known defects.
check-servers: $(STAMP)
	$(BIN)/python -m tests.conformance.check_servers

# A second JSON Schema validator, and clients that others' generators make of the OpenAPI document.
documents: $(STAMP)
	$(BIN)/python -m tests.documents.tools
	$(BIN)/python -m pytest -q tests/documents

# The SDK's first major version, a WebSocket peer that nobody here wrote; tests use it where it is there.
old-sdk: $(STAMP)
	$(BIN)/python -m tests.conformance.old_sdk

bench: $(STAMP)
	cargo bench --locked
	$(BIN)/python -m benches.run

bench-smoke: $(STAMP)
	cargo bench --locked -- --test
	$(BIN)/python -m benches.run --smoke

wheel: $(BIN)/maturin
	. $(BIN)/activate && maturin build --out dist

clean:
	cargo clean
	rm -rf $(VENV) dist
