# rerail: `make help` lists the targets. Every target sets up what it needs.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# uv does not look where pip is told to; the CPU build of torch lies there on some machines.
export UV_FIND_LINKS ?= $(PIP_FIND_LINKS)

.DEFAULT_GOAL := help
.PHONY: help demo browser-files test check bench eval faultlab launchers kubernetes nightly format pictures clean

help:  ## Show this list.
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sort | awk -F':.*## ' '{printf "  %-10s %s\n", $$1, $$2}'

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet uv

$(VENV)/.core: $(BIN)/python pyproject.toml log_parsers/_line_tables.c log_parsers/_line_skeletons.h
	$(BIN)/uv pip install --quiet --python $(BIN)/python -e .
	@touch $@

$(VENV)/.dev: $(BIN)/python pyproject.toml log_parsers/_line_tables.c log_parsers/_line_skeletons.h
	$(BIN)/uv pip install --quiet --python $(BIN)/python torch==2.13.0
	$(BIN)/uv pip install --quiet --python $(BIN)/python -e '.[dev]'
	@touch $@ $(VENV)/.core

demo: $(VENV)/.core  ## From nothing: install, then diagnose a bundled real failed job.
	@echo '$$ rerail diagnose tests/data/faultlab/hang_one_rank'
	@$(BIN)/rerail diagnose tests/data/faultlab/hang_one_rank

browser-files: $(VENV)/.dev  ## Take the page's browser files from npm packages, by checksum.
	$(BIN)/python -m rerail.assistant.web.browser_files

test: $(VENV)/.dev check  ## From nothing: install, check, and run every test.
	@$(MAKE) --no-print-directory browser-files || echo "the tests of the page are skipped" >&2
	$(BIN)/python -m pytest -n 3 --dist worksteal  # the first of them mostly waits for jobs of a real Slurm

check: $(VENV)/.dev  ## Lint, types, import layers, rules.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/rerail kb lint

format: $(VENV)/.dev  ## Format the code.
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

eval: $(VENV)/.dev  ## Score the recorded fault lab; CASES=folder scores labelled cases as well.
	$(BIN)/rerail eval faultlab --recorded tests/data/faultlab
	$(BIN)/rerail eval faultlab --recorded tests/data/slurm
	$(BIN)/rerail eval launchers
	$(BIN)/rerail eval retrieval --recorded tests/data/faultlab
	$(BIN)/rerail eval agent --recorded tests/data/faultlab --replay tests/data/agent/fake-keywords.jsonl
	$(BIN)/rerail eval learning
	$(BIN)/rerail eval attacks
	$(if $(CASES),$(BIN)/rerail eval cases $(CASES)/dev.jsonl --failures)
	$(if $(CASES),$(BIN)/rerail eval logs $(CASES)/mlperf)

faultlab: $(VENV)/.dev  ## Run all real failing jobs anew and score them (about 15 minutes).
	$(BIN)/rerail eval faultlab

launchers: $(VENV)/.dev  ## Run the same faults under all launchers anew, record and score them (root, about 90 minutes).
	evals/launchers/install.sh
	$(BIN)/rerail eval launchers --remake

KUBERNETES_BIN ?= $(HOME)/.cache/rerail/kubernetes-1.20.2
kubernetes: $(VENV)/.dev  ## Build a real Kubernetes control plane (once, 10 to 20 minutes), test recovery on it.
	evals/kubernetes/build.sh $(KUBERNETES_BIN)
	KUBERNETES_BIN=$(KUBERNETES_BIN) $(BIN)/python -m pytest -m kubernetes tests/recovery tests/evals/kubernetes

nightly: kubernetes  ## What takes long or needs root: Kubernetes, all scenarios and traps on a real Slurm, the hook's load.
	evals/cluster/install.sh
	$(BIN)/rerail eval cluster run
	$(BIN)/rerail eval cluster run trust
	$(BIN)/rerail eval load
	$(BIN)/uv pip install --quiet --python $(BIN)/python -e '.[callbacks]'
	$(BIN)/python -m pytest -m nightly

bench: $(VENV)/.dev  ## Measure speed and memory as ratios; SIZE_GB=1.2.
	$(BIN)/rerail eval bench --size-gb $(or $(SIZE_GB),1.2)

pictures: browser-files  ## Take the pictures of docs/images anew, from recorded jobs and a simulated year (Chromium).
	$(BIN)/python -m rerail.evals.pictures docs/images

clean:  ## Remove the environment and caches.
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis build *.egg-info src/*.egg-info bench-data
