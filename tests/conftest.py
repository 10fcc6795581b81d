"""Fixtures for the whole suite: where the public data lies, if it lies anywhere, and real engines."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from tests.executor.kubernetes_cluster import KubernetesCluster
    from tests.executor.ray_cluster import RayCluster
    from tests.executor.slurm_cluster import SlurmCluster

# How long an example takes says more about what else the machine does than about the code.
settings.register_profile("trine", deadline=None)
settings.load_profile("trine")

SHARED = Path(os.environ.get("TRINE_SHARED", Path(__file__).parents[2] / "shared"))


def pytest_configure() -> None:
    """A suite that a script runs in the background begins with interrupts ignored, as would all that it starts."""
    for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, handler)


def _existing(path: Path) -> Path:
    if not path.is_dir():
        pytest.skip(f"public data not found at {path} (set TRINE_SHARED to the folder that holds data/ and reference/)")
    return path


@pytest.fixture(autouse=True)
def _interrupts_as_before() -> Iterator[None]:
    """The command, where a test calls it in this process, answers Ctrl-C in its own way; the next test need not."""
    before = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Public traces and hardware measurements."""
    return _existing(SHARED / "data")


@pytest.fixture(scope="session")
def reference() -> Path:
    """Per-job results of the published systems' own code."""
    return _existing(SHARED / "reference")


@pytest.fixture(scope="session")
def slurm() -> Iterator[SlurmCluster]:
    """A real Slurm of four nodes with two GPUs each, in two racks."""
    from tests.executor.slurm_cluster import slurm_cluster

    with slurm_cluster(4, 2) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def kubernetes() -> Iterator[KubernetesCluster]:
    """A real kube-apiserver with four played nodes of two GPUs each, in two racks."""
    from tests.executor.kubernetes_cluster import kubernetes_cluster

    with kubernetes_cluster(4, 2) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def ray() -> Iterator[RayCluster]:
    """A real Ray of four nodes with two GPUs each, in two racks."""
    from tests.executor.ray_cluster import ray_cluster

    with ray_cluster(4, 2) as cluster:
        yield cluster
