# The newcomer's door: `make demo` shows the main job, `make test` proves it.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# The browser of the browser tests, where it may be installed.
CHROMIUM := if command -v chromium > /dev/null; then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get > /dev/null && \
		apt-get -qq update && apt-get -qq install -y chromium; then :; \
	else echo "No chromium, and none could be installed: browser tests will be skipped."; fi
.PHONY: demo test lint bench benchmark reference docs clean

demo: $(STAMP)
	$(BIN)/bagwise demo --out demo

test: $(STAMP)
	$(BIN)/python -m pytest -n auto

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(STAMP)
	$(BIN)/python benchmarks/bags.py
	$(BIN)/python benchmarks/linear.py
	$(BIN)/python benchmarks/theory.py
	$(BIN)/python benchmarks/agreement.py
	$(BIN)/python benchmarks/release.py
	$(BIN)/python benchmarks/rounds.py
	$(BIN)/python benchmarks/weights.py
	$(BIN)/python benchmarks/scale.py
	$(BIN)/python benchmarks/growth.py
	$(BIN)/python benchmarks/neural.py
	$(BIN)/python benchmarks/families.py
	$(BIN)/python benchmarks/app.py

benchmark: $(STAMP)
	$(BIN)/bagwise benchmark --out benchmark --size small --jobs 2

# Pages of commands and names, from the code; a test says when they are behind it.
reference: $(STAMP)
	$(BIN)/python -m tools.reference

docs: $(STAMP)
	$(BIN)/zensical build --clean --strict

# A second call finds the stamp newer than what it was made from and installs nothing.
$(STAMP): pyproject.toml constraints.txt requirements-dev.txt requirements-tables.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check \
		--constraint constraints.txt --requirement requirements-dev.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check \
		--no-deps --requirement requirements-tables.txt
	@$(CHROMIUM)
	touch $(STAMP)

clean:
	rm -rf $(VENV) demo benchmark site
