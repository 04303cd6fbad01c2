# `make` alone prints this help. Everything longer than a line is in deploy/setup.sh.
SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help setup java demo test check bench quality clean

PY := .venv/bin/python
SAMPLE := tests/data/sample
BENCH_ARGS ?=
QUALITY_ARGS ?=

help: ## print this help
	@awk -F ':.*## ' '/^[a-z]+:.*## /{printf "make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## make .venv with all that demo and test need (quick and without effect when repeated)
	@deploy/setup.sh

java: ## download a Java for Spark into .jdk
	@deploy/setup.sh java

demo: setup ## set up, link the two sample clouds into demo-out, and judge the links by the truth
	.venv/bin/veclink link --source $(SAMPLE)/source.parquet --target $(SAMPLE)/target.parquet --seeds $(SAMPLE)/seeds.csv --out demo-out
	.venv/bin/veclink measure --links demo-out --truth $(SAMPLE)/truth.csv

test: setup ## set up and run the tests
	$(PY) -m pytest -n 2 --dist loadfile --no-loadscope-reorder $(TEST_ARGS)

check: setup ## lint, format and type checks, and the order of imports
	.venv/bin/ruff check
	.venv/bin/ruff format --check
	.venv/bin/mypy
	$(PY) -m pytest -q tests/test_rings.py

bench: setup ## measure speed: one view against its floor, Spark against one process (BENCH_ARGS="-k view")
	$(PY) -m pytest -m bench tests/bench $(BENCH_ARGS)

quality: setup ## print the quality table (QUALITY_ARGS="--data FOLDER" for more data)
	cd tests && PYTHONPATH=. OMP_NUM_THREADS=1 ../$(PY) -m bench.quality $(QUALITY_ARGS)

clean: ## remove what demo, tests and builds leave behind (not .venv, not .jdk)
	rm -rf demo-out build dist spark-warehouse metastore_db derby.log .pytest_cache .ruff_cache .mypy_cache .hypothesis
	find lib tests jobs -name __pycache__ -prune -exec rm -rf {} +
