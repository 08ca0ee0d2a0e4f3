# Everything installs into .venv; nothing outside this folder is touched.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# Without bytecode every process compiles all that it imports, which is most of its start.
unexport PYTHONDONTWRITEBYTECODE
# Many tests wait for processes more than they compute.
JOBS ?= 3

.PHONY: demo test lint bench soak clean

demo: $(STAMP)
	$(BIN)/maad demo

test: $(STAMP)
	$(BIN)/python -m pytest -n $(JOBS) --dist loadgroup

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(STAMP)
	$(BIN)/python -m benchmarks.run

soak: $(STAMP)
	$(BIN)/python -m pytest -m soak --timeout 3600 -o addopts="-ra --strict-markers --import-mode=importlib"

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache dist
