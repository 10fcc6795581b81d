"""The generated jobs of Dally's experiments: sizes, run times and models as stated, arrivals at random or all at once.

The paper's own workload is not known; this mix is a design of this project. Same arguments, same jobs: every column
has a random stream of its own, so that a scenario changes what it names and nothing else.
"""

from __future__ import annotations

import math
import random
from itertools import accumulate

from trine.core.job import Job
from trine.trace.models import Mix, MixModel, draw_models

HOUR_S = 3600.0
SIZES = (1, 2, 4, 8, 16, 32, 64)
SIZE_WEIGHTS = (0.30, 0.12, 0.15, 0.23, 0.12, 0.06, 0.02)
MEDIAN_S, SIGMA, LONGEST_S = 2 * HOUR_S, 1.1, 48 * HOUR_S
"""Run times are lognormal, and none is longer than the last."""
MODELS = (
    *("ResNet-50", "ResNet-152", "Inception-v3", "YOLOv3"),
    *("VGG-16", "AlexNet", "BERT-base", "BERT-large", "GNMT", "DLRM"),
)
MIX = Mix("dally", tuple(map(MixModel, MODELS)))
"""Ten models in equal parts; those of the second line are network-sensitive."""

DENSE = Mix("dally without embeddings", tuple(model for model in MIX.models if model.name != "DLRM"))
"""Without the model that slows down most when it is spread: how much of a gain is its doing?"""


def generated_jobs(
    seed: int,
    *,
    jobs: int,
    gpus: int,
    load: float | None = 1.0,
    sensitive_share: float | None = None,
    mix: Mix = MIX,
) -> list[Job]:
    """Jobs in the order of submission, the first at 0; ``load`` ``None`` submits all of them at 0.

    ``load`` is the GPU-seconds asked for per GPU-second of ``gpus`` GPUs between the first submission and the last.
    """
    sizes = random.Random(f"{seed}/sizes").choices(SIZES, SIZE_WEIGHTS, k=jobs)
    drawn = random.Random(f"{seed}/durations")
    durations_s = [min(drawn.lognormvariate(math.log(MEDIAN_S), SIGMA), LONGEST_S) for _ in range(jobs)]
    submit_s = [0.0] * jobs
    if load is not None:
        work_gpu_s = sum(size * duration_s for size, duration_s in zip(sizes, durations_s, strict=True))
        submit_s = _poisson_s(seed, jobs, work_gpu_s / (gpus * load))
    rows = zip(submit_s, sizes, durations_s, strict=True)
    plain = [Job(str(i), round(at_s, 3), size, round(duration_s, 3)) for i, (at_s, size, duration_s) in enumerate(rows)]
    return draw_models(plain, mix, seed, sensitive_share)


def _poisson_s(seed: int, jobs: int, span_s: float) -> list[float]:
    """Times of a Poisson process, stretched so that the last one is ``span_s``."""
    arrivals = random.Random(f"{seed}/arrivals")
    at = list(accumulate((arrivals.expovariate(1.0) for _ in range(jobs - 1)), initial=0.0))
    return [x * span_s / at[-1] for x in at] if jobs > 1 else at
