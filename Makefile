# What a person runs. Python 3.11 or newer and make are all that must be there; every target gets what else it needs.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

STACK ?= dev
# One more than most machines here have cores: tests wait for processes, engines and machines.
PYTEST_WORKERS ?= 3
PULUMI_FLAGS ?=
ATTACK_FLAGS ?=
ARGS ?= about
python := .venv/bin/python
labs = tools/setup/apt.sh test && $(python) -m infra.engine show >/dev/null && $(python) -m tools.labs run
export PYTHONUNBUFFERED := 1

.PHONY: help
help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo '  STACK=dev is the default; another stack: make preview STACK=prod. rehearse takes a path too: STACK=tests/stacks/premium'

.PHONY: setup
setup: ## Install into .venv what the lock says (every target does this first)
	@tools/setup/setup.sh

.PHONY: engine
engine: setup ## Get the Pulumi engine: from PATH, a release, or a build (minutes, once)
	@$(python) -m infra.engine show

.PHONY: rehearse
rehearse: setup ## Run a stack's whole life on a simulated Azure: up, preview, update, destroy
	@echo "rehearsing stack $(STACK) on a simulated cloud" >&2
	@.venv/bin/infra rehearse -s $(notdir $(STACK)) $(if $(findstring /,$(STACK)),--stacks-dir $(dir $(STACK)))

.PHONY: test
test: setup ## Run all tests except the deep labs, including a booted node and a real engine
	@tools/setup/apt.sh test
	@$(python) -m infra.engine show >/dev/null
	@for made in venvs.vllm_cpu venvs.jupyterlab_env node_lab.image; do $(python) -m tools.$$made >/dev/null; done
	@echo "running all tests but the deep labs, $(PYTEST_WORKERS) at a time" >&2
	@$(python) -m pytest -n $(PYTEST_WORKERS) --dist loadfile --no-loadscope-reorder -m 'not lab' tests

.PHONY: quick
quick: setup ## Run the unit tests (under a minute)
	@echo "running the unit tests" >&2
	@$(python) -m pytest -q -n 2 -m 'not slow' tests/unit tests/tools

.PHONY: attack
attack: setup ## Run the known attacks on a hostile and a real engine; print what each did (ATTACK_FLAGS='--json FILE F6')
	@tools/setup/apt.sh test
	@$(python) -m tools.attack $(ATTACK_FLAGS)

.PHONY: labs
labs: setup ## Run the deep labs one after the other; those that passed on this tree are not run again
	@$(labs)

.PHONY: node-lab
node-lab: setup ## Boot the rendered cloud-init in emulated machines, with and without faults; print the scenarios
	@$(labs) node

.PHONY: namespaces-lab
namespaces-lab: setup ## Run two nodes in namespaces, with real Ray and real vLLM, and delivery over SSH
	@$(labs) namespaces

.PHONY: engines-lab
engines-lab: setup ## Run the real-engine tests on the engines that nodes do not run (yet)
	@$(labs) engines

.PHONY: soak-lab
soak-lab: setup ## Put the wrapper under steady load for minutes; check that its memory stays flat
	@$(labs) soak

.PHONY: fuzz-lab
fuzz-lab: setup ## Fuzz the wrapper for minutes (HUDDLE_FUZZ_SECONDS=3600 for an hour; HUDDLE_FUZZ_SEED repeats a run)
	@$(labs) fuzz

.PHONY: lint
lint: setup ## Check style, types, shell, YAML, workflows and the tree's own rules
	@tools/setup/apt.sh lint
	@$(python) -m tools.lint

.PHONY: docs
docs: setup ## Write the generated documents: references and pictures
	@.venv/bin/infra docs

.PHONY: preview
preview: setup ## Show what `make up` would change
	@$(python) -m infra.cli.deploy preview $(STACK) -- $(PULUMI_FLAGS)

.PHONY: up
up: setup ## Create or update the stack (asks first)
	@$(python) -m infra.cli.deploy up $(STACK) -- $(PULUMI_FLAGS)

.PHONY: destroy
destroy: setup ## Delete the stack's resources (asks first)
	@$(python) -m infra.cli.deploy destroy $(STACK) -- $(PULUMI_FLAGS)

.PHONY: pulumi
pulumi: setup ## Run any Pulumi command: make pulumi ARGS='config set --secret backend_key -s dev'
	@$(python) -m infra.engine run -- $(ARGS)

.PHONY: local
local: setup ## Serve a tiny model here: real vLLM (CUDA where there is a GPU) behind the wrapper
	@engine=; command -v nvidia-smi >/dev/null || engine=$$(dirname "$$($(python) -m tools.venvs.vllm_cpu)")/vllm; \
	.venv/bin/huddle local start $${engine:+--vllm "$$engine"} $(if $(PORT),--port $(PORT))

.PHONY: local-stop
local-stop: ## Stop what `make local` started
	@[ ! -x .venv/bin/huddle ] || .venv/bin/huddle local stop

.PHONY: lock
lock: setup ## Compile all locks again from requirements/*.in (takes newer versions)
	@tools/lock.sh

.PHONY: clean
clean: ## Remove what the targets left in the tree (the cache outside of it stays)
	@echo "removing .venv, caches and rehearsal state from the tree" >&2
	@rm -rf .venv .rehearsal .local .pytest_cache .ruff_cache .mypy_cache .hypothesis build dist ./*.egg-info serving/src/*.egg-info
	@find . -name __pycache__ -not -path './.git/*' -prune -exec rm -rf {} +
