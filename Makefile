# Every target works on a fresh checkout at any path; `make demo` and `make test` install what is missing.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# rustup puts cargo here, whether or not the shell was told.
export PATH := $(or $(CARGO_HOME),$(HOME)/.cargo)/bin:$(PATH)

# `ci` is `dev` without incremental state, which a fresh checkout never reuses.
PROFILE ?= dev
TARGET := $(or $(CARGO_TARGET_DIR),target)
BIN_DIR := $(TARGET)/$(if $(filter dev,$(PROFILE)),debug,$(PROFILE))

# Always the whole workspace: parts of it would be built with other features, all anew.
BUILD := cargo build --workspace --profile $(PROFILE)
NEXTEST := cargo nextest run --workspace --cargo-profile $(PROFILE)

# Where `make screenshots` puts its pictures.
SCREENSHOTS ?= .data/screenshots

.PHONY: help demo up test prove build lint bench browser screenshots sqlx docs proof conformance

help: ## Show this
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 16

demo: ## A governed call from beginning to end; DEMO_EXIT=1 stops everything afterwards
	@deploy/install.sh
	$(BUILD)
	@BIN_DIR="$(BIN_DIR)" deploy/demo.sh

up: ## Serve on this machine; UP="--listen HOST:PORT --data-dir DIR" passes flags
	@deploy/install.sh
	$(BUILD)
	exec "$(BIN_DIR)/bailiwick" up $(UP)

test: ## All tests, and the proof that .sqlx is fresh; T="<filter>" runs some of them
	@deploy/install.sh tests
	@$(MAKE) --no-print-directory prove
	$(NEXTEST) $(T)

# Builds the tests, the SQL checked on the way.
prove:
	@deploy/sqlx.sh check $(NEXTEST) --no-run

build: ## Build everything
	$(BUILD)

lint: ## Format, clippy, and the dependency rules where cargo-deny is installed
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings
	@if cargo deny --version >/dev/null 2>&1; then cargo deny --all-features check; else echo "cargo-deny is not installed: its rules were not checked"; fi

bench: ## Measure the gateway beside a direct client; BENCH_JSON=FILE writes the figures
	@deploy/install.sh tests
	$(if $(BENCH_JSON),BENCH_JSON=$(abspath $(BENCH_JSON))) cargo bench --workspace --bench bench

proof: ## Real MCP servers and clients of ../shared/rig through the gateway; SHARED=DIR where it is elsewhere
	@deploy/install.sh
	$(BUILD)
	@BIN_DIR="$(BIN_DIR)" tests/proof/run.sh

conformance: ## MCP's conformance suite (npm) against the gateway; FIXTURE=rig takes its own fixture of ../shared/rig
	@deploy/install.sh
	$(BUILD)
	@BIN_DIR="$(BIN_DIR)" tests/conformance/run.sh

browser: ## The pages in a real browser: a line `ok <journey>` each
	@deploy/install.sh
	$(BUILD)
	@BIN_DIR="$(BIN_DIR)" tests/browser/run.sh

screenshots: ## The same, with pictures of every page in $(SCREENSHOTS)
	@deploy/install.sh
	$(BUILD)
	@BIN_DIR="$(BIN_DIR)" SCREENSHOTS="$(abspath $(SCREENSHOTS))" tests/browser/run.sh

sqlx: ## Check our SQL against a Postgres and write .sqlx anew
	@deploy/install.sh tests
	@deploy/sqlx.sh write

docs: ## Write the generated documents anew
	@deploy/install.sh tests
	BLW_WRITE=1 $(NEXTEST) -E 'test(tidy)'
