# The newcomer's door: `make demo` shows the main job, `make test` proves it.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
.PHONY: demo test lint bench docs clean

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
	$(BIN)/python benchmarks/scale.py
	$(BIN)/python benchmarks/growth.py
	$(BIN)/python benchmarks/neural.py
	$(BIN)/python benchmarks/families.py

docs: $(STAMP)
	$(BIN)/zensical build --clean --strict

# A second call finds the stamp newer than what it was made from and installs nothing.
$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check \
		--constraint constraints.txt --requirement requirements-dev.txt
	touch $(STAMP)

clean:
	rm -rf $(VENV) demo site
