# For people who work on pipegen. Users need none of this: see README.md.
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin

$(BIN)/pipegen: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade pip
	$(BIN)/pip install --quiet -e '.[all]'
	touch $@

.PHONY: test check emulated golden docs format
test: $(BIN)/pipegen
	$(BIN)/python -m pytest

check: $(BIN)/pipegen
	$(BIN)/pipegen check generated

# Minutes to an hour: every module of generated/, at the sizes where protocols break.
emulated: $(BIN)/pipegen
	$(BIN)/pipegen verify generated

golden: $(BIN)/pipegen
	$(BIN)/python tests/golden.py

docs: $(BIN)/pipegen
	$(BIN)/python -m pipegen.selection_docs README.md docs/selection.md
	$(BIN)/python -m pipegen.rules_docs docs/rules.md
	$(BIN)/python -m pipegen.classes_docs docs/classes
	$(BIN)/python -m pipegen.description_docs docs/description.md
	$(BIN)/python -m pipegen.custom_docs docs/custom.md
	$(BIN)/python benchmarks/tables.py README.md
	$(BIN)/python benchmarks/jax_versions.py --table
	$(BIN)/python benchmarks/tuning_table.py docs/tuning.md
	$(BIN)/python benchmarks/tuning_table.py README.md

format: $(BIN)/pipegen
	$(BIN)/black pipegen tests benchmarks
	$(BIN)/ruff check --fix pipegen tests benchmarks
