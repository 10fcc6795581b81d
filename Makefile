# Two commands do everything: `make run` and `make test`. Both set up .venv first if it is not there.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
# Tests of processes wait for a quarter of their time: half as many workers again as there are cores.
WORKERS ?= $(shell echo $$(( ($$(getconf _NPROCESSORS_ONLN) * 3 + 1) / 2 )))
# Compiled modules are kept whatever the environment says: without them every worker, and every process that a test
# starts, compiles all of them anew, which takes a tenth of the suite's time.
unexport PYTHONDONTWRITEBYTECODE
OUT ?= runs/quickstart
STATE ?= runs/live
WORKLOAD = $(BIN)/python examples/run_workload.py --engine slurm
KUBE_CACHE = $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/trine
KUBE = PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m tests.executor.kubernetes_cluster
UP_KUBE = --placement packed-sticky --set engine.python=$(CURDIR)/$(BIN)/python --set engine.exchange_s=0.2
ON_KUBE = $(BIN)/python examples/run_workload.py --engine kubernetes --up "$(UP_KUBE) $(1)"
ON_RAY = $(BIN)/python examples/run_workload.py --engine ray --up '--set engine.ray_python=$$RAY_PYTHON $(1)'
# Jobs in the order of their priority, so that it is known who makes way for whom: the policy trine keeps a gang that is
# measured to end in seconds before jobs of which nobody knows how long they take.
GANG = --files examples/workload_gang --relay
ORDERED = --policy las --placement packed

.PHONY: browser ray ray-installed ray-demo run sim test test-failed training torch slurm slurm-demo kubernetes kube-apiserver kubernetes-demo
.PHONY: bench lint types imports docs notebooks pictures wheel clean

# A scheduler on this machine's GPUs (virtual ones if there are none) runs the example workload; KEEP=1 stays up.
run: $(VENV)/.ready
	$(BIN)/python examples/run_workload.py --state $(STATE) $(if $(KEEP),--keep)

# The simulator's quickstart: five policies on one workload, with a report.
sim: $(VENV)/.ready
	$(BIN)/trine sim compare --preset quickstart --out $(OUT) --overwrite

test: $(VENV)/.ready-dev
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m "not training and not slurm and not kubernetes and not ray and not browser" --durations 30

# The dashboard in a real Chromium; the tests skip, and say how to get it, where there is none.
browser: $(VENV)/.ready-dev
	$(BIN)/python -m pytest -m browser -rs

# What failed last, one at a time: tells what is broken from what only a busy machine breaks.
test-failed: $(VENV)/.ready-dev
	$(BIN)/python -m pytest --last-failed --last-failed-no-failures none

# The tests of real, also distributed, training. PyTorch is not needed by trine itself and large, so they stand apart.
training: torch
	$(BIN)/python -m pytest -n auto -m training

torch: $(VENV)/.ready-dev
	$(BIN)/python -m pip install --quiet --disable-pip-version-check torch==2.13.0

# The tests against a real Slurm, which they start on loopback; they skip, and say how to get it, where there is none.
slurm: $(VENV)/.ready-dev
	$(BIN)/python -m pytest -n 3 -m "slurm and not training" -rs

# The example workload on a real Slurm, started on loopback; then a gang that is preempted and goes on on other nodes.
slurm-demo: $(VENV)/.ready-dev
	$(BIN)/python -m tests.executor.slurm_cluster 2x2 -- $(WORKLOAD) --state $(STATE)-slurm
	$(BIN)/python -m tests.executor.slurm_cluster 4x2 -- $(WORKLOAD) --state $(STATE)-gang $(GANG) --up '$(ORDERED)'

# The tests against a real kube-apiserver with played kubelets; they skip, and name the next target, where there is none.
kubernetes: $(VENV)/.ready-dev
	$(BIN)/python -m pytest -n 2 -m kubernetes -rs

# Built once from Debian's source package, in nine minutes, and kept outside the checkout.
kube-apiserver:
	tests/executor/kube_apiserver.sh $(KUBE_CACHE)

# The example workload on that; then a gang that is preempted and goes on on other nodes. Pods run as local processes.
kubernetes-demo: $(VENV)/.ready-dev
	$(KUBE) 2x2 -- $(call ON_KUBE) --state $(STATE)-kubernetes
	$(KUBE) 4x2 -- $(call ON_KUBE,$(ORDERED)) --state $(STATE)-kubernetes-gang $(GANG)

# The tests against a real Ray, which they start in a network namespace; they skip where there is no right to make one.
# Ray is not needed by trine itself and large, so it stands apart. Only files that name the mark are collected.
ray: ray-installed
	$(BIN)/python -m pytest -m ray -rs --durations 15 $$(grep -rl --include='test_*.py' 'mark\.ray\b' tests)

ray-installed: $(VENV)/.ready-dev
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --requirement requirements-ray.lock

# The example workload on a real Ray; then a gang that is preempted and goes on on other nodes.
ray-demo: ray-installed
	$(BIN)/python -m tests.executor.ray_cluster 2x2 -- $(call ON_RAY) --state $(STATE)-ray
	$(BIN)/python -m tests.executor.ray_cluster 4x2 -- $(call ON_RAY,$(ORDERED)) --state $(STATE)-ray-gang $(GANG)

bench: $(VENV)/.ready-dev
	$(BIN)/python -m benchmarks

lint: $(VENV)/.ready-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.ready-dev
	$(BIN)/mypy

imports: $(VENV)/.ready-dev
	$(BIN)/lint-imports

# The reference pages that are made from the code; a test keeps them up to date.
docs: $(VENV)/.ready-dev
	$(BIN)/python docs/reference.py
	$(BIN)/python -m tests.contract.table

# What the cells of the notebooks show, stored in them; a test keeps it up to date.
notebooks: $(VENV)/.ready
	for path in examples/*.ipynb; do $(BIN)/python examples/run_notebook.py $$path || exit 1; done

# The pictures of the documentation; those of pages in a headless Chromium.
pictures: $(VENV)/.ready-dev
	$(BIN)/python docs/pictures.py
	$(BIN)/python docs/page_pictures.py
	$(BIN)/python -m docs.dashboard_pictures

# Two distributions: trine, and trine-sdk for the environments of training scripts.
wheel: $(VENV)/.ready-dev
	$(BIN)/python -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir dist . ./packaging/sdk

clean:
	rm -rf $(VENV) dist runs

$(VENV)/.ready: requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "trine needs Python 3.11 or newer; set PYTHON=/path/to/python3.11"; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --requirement requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

$(VENV)/.ready-dev: $(VENV)/.ready requirements-dev.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --requirement requirements-dev.lock
	@touch $@
