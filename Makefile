# Every target makes its own environment in .venv from the project's files.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# bytecode is written by what is imported, once, not by pip for all that is installed
PIP := -m pip install --quiet --disable-pip-version-check --no-compile
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-all mutants wheel-test docs docs-test clean

$(VENV)/.plot: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python $(PIP) --editable ".[plot]"
	touch $@

$(VENV)/.test: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python $(PIP) --editable ".[test]"
	touch $@

$(VENV)/.docs: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python $(PIP) --editable ".[docs]"
	touch $@

demo: $(VENV)/.plot
	$(BIN)/optfair demo --out demo

test: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy & types=$$!; $(BIN)/python -m pytest -n 2 --dist loadfile; tests=$$?; \
	  wait $$types && exit $$tests

test-all: test
	$(BIN)/python -m pytest -m slow

# small changes to the code, each of which a test must notice; survivors are in tests/mutants.toml
mutants: $(VENV)/.test
	$(BIN)/python tests/mutants.py

# a wheel from the sdist, alone in an environment of each Python that is here, does what the README says
wheel-test:
	$(PYTHON) tests/wheel.py

docs: $(VENV)/.docs
	$(BIN)/python -m sphinx -W --keep-going -b html docs docs/_build/html

# ten and more pages of the site, opened in a browser without network
docs-test: docs $(VENV)/.test
	OPTFAIR_SITE=docs/_build/html $(BIN)/python -m pytest -m slow tests/docs

clean:
	rm -rf $(VENV) demo docs/_build docs/gallery docs/textbook
