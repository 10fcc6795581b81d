"""The shipped table of model families: gradient bytes, compute seconds by batch size on a V100, overlap, restart cost.

Every row has a source. Gradients are 4 bytes per parameter (FP32). "assumed" marks figures that are not published:
measure such models with ``trine profile network``. Data only; names are matched in ``trine.perf.model_traffic``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

M = 4e6
"""Gradient bytes per million parameters."""


@dataclass(frozen=True, slots=True)
class ModelFamily:
    """Models that differ by batch size only."""

    gradient_bytes: float
    compute_s: Mapping[int, float]
    """Seconds of compute by samples per GPU; between two of them a straight line, beyond them in proportion."""
    source: str
    overlap: float = 2.0
    restart_s: float = 60.0
    batch: int = 0
    """Samples per GPU where the name gives no batch size; 0: the first of ``compute_s``."""
    sample_all_to_all_bytes: float = 0.0

    def compute_at(self, batch: int) -> float:
        """Seconds of compute with ``batch`` samples per GPU."""
        known = sorted(self.compute_s.items())
        below = [point for point in known if point[0] <= batch]
        above = [point for point in known if point[0] >= batch]
        if not below or not above:
            samples, seconds = (below or above)[-1 if below else 0]
            return seconds * batch / samples
        (low, low_s), (high, high_s) = below[-1], above[0]
        return low_s if low == high else low_s + (high_s - low_s) * (batch - low) / (high - low)


_TORCHVISION = "parameters and operations: torchvision model table"
_EXAMPLES = "NVIDIA DeepLearningExamples, V100, FP32"
_GAVEL = "compute: 1-GPU V100 rates of stanford-futuredata/gavel (MIT), simulation_throughputs.json"
_PAL = "compute: seconds per iteration of hal-uw/blox-pal (MIT), workload/workload.py"
_BY_OPS = f"{_TORCHVISION}; compute: that of ResNet-50 (367 images/s, {_EXAMPLES}) by operations"
_LOADS_IMAGENET = 250.0
"""Seconds to the first iteration of ImageNet training, of BERT, of a small recommendation model: petuum/adaptdl."""
_LOADS_BERT = 120.0
_LOADS_SMALL = 15.0

FAMILIES: dict[str, ModelFamily] = {
    "resnet18": ModelFamily(
        11.69 * M,
        {16: 0.0309, 32: 0.0334, 64: 0.0415, 128: 0.0556, 256: 0.0971},
        f"{_TORCHVISION}; {_GAVEL}",
        batch=64,
    ),
    "resnet50": ModelFamily(
        25.56 * M,
        {16: 0.0877, 32: 0.1284, 64: 0.2275, 128: 0.4005},
        f"{_TORCHVISION}; {_GAVEL}; the batch without one gives the 0.175 s of hal-uw/blox-pal",
        overlap=3.0,
        restart_s=_LOADS_IMAGENET,
        batch=47,
    ),
    "resnet101": ModelFamily(44.55 * M, {32: 0.166}, _BY_OPS, 3.0, _LOADS_IMAGENET),
    "resnet152": ModelFamily(60.19 * M, {32: 0.245}, _BY_OPS, 3.0, _LOADS_IMAGENET),
    "vgg11": ModelFamily(132.86 * M, {32: 0.117}, f"{_TORCHVISION}; compute: VGG-19's by operations", 2.0, 250.0),
    "vgg16": ModelFamily(138.36 * M, {32: 0.237}, f"{_TORCHVISION}; compute: VGG-19's by operations", 2.0, 250.0),
    "vgg19": ModelFamily(143.67 * M, {32: 0.3006}, f"{_TORCHVISION}; {_PAL}, batch assumed", 2.0, 250.0),
    "alexnet": ModelFamily(61.1 * M, {128: 0.060}, _BY_OPS, 2.0, _LOADS_IMAGENET),
    "inceptionv3": ModelFamily(27.16 * M, {32: 0.122}, _BY_OPS, 3.0, _LOADS_IMAGENET),
    "inceptionv4": ModelFamily(42.7 * M, {32: 0.262}, "Szegedy et al. 2017; compute as ResNet-50's by operations", 3.0),
    "googlenet": ModelFamily(6.62 * M, {64: 0.064}, _BY_OPS, 3.0, _LOADS_IMAGENET),
    "mobilenetv2": ModelFamily(3.5 * M, {64: 0.052}, f"{_TORCHVISION}; compute assumed: bound by memory", 2.0, 250.0),
    "mobilenetv3": ModelFamily(5.48 * M, {64: 0.045}, f"{_TORCHVISION}; compute assumed: bound by memory", 2.0, 250.0),
    "shufflenetv2": ModelFamily(2.28 * M, {64: 0.04}, f"{_TORCHVISION}; compute assumed: bound by memory", 2.0, 250.0),
    "efficientnetb0": ModelFamily(5.29 * M, {64: 0.11}, f"{_TORCHVISION}; compute assumed: bound by memory", 2.0),
    "vitb16": ModelFamily(
        86.57 * M, {16: 0.0689, 32: 0.1207}, f"{_TORCHVISION}; compute: V100 step times published with Titan"
    ),
    "ssd300": ModelFamily(23.0 * M, {32: 0.299}, f"rate 107 images/s: {_EXAMPLES}; parameters assumed: its ResNet-50"),
    "yolov3": ModelFamily(
        61.9 * M, {8: 0.35}, "parameters: Redmon and Farhadi 2018; compute: ResNet-50's by operations"
    ),
    "bertbase": ModelFamily(
        110.0 * M,
        {32: 0.2676},
        "Devlin et al. 2019; compute: 119.6 sequences/s of length 128, DLPerf, PyTorch, V100, FP32; the batch without "
        "one gives the 0.179 s of hal-uw/blox-pal",
        restart_s=_LOADS_BERT,
        batch=21,
    ),
    "bertlarge": ModelFamily(
        335.0 * M, {10: 0.2}, f"Devlin et al. 2019; 50 sequences/s of length 128: {_EXAMPLES}", 2.0, _LOADS_BERT
    ),
    "robertabase": ModelFamily(
        125.0 * M, {8: 0.105, 16: 0.189}, "Liu et al. 2019; compute: V100 step times published with Titan", 2.0, 120.0
    ),
    "gpt2": ModelFamily(
        124.0 * M,
        {56: 3.5714},
        f"Radford et al. 2019; {_PAL}; batch: 6 operations per parameter and token, 1,024 tokens, 12 TFLOP/s",
    ),
    "gpt2xl": ModelFamily(1558.0 * M, {4: 3.19}, "Radford et al. 2019; compute: as gpt2 by parameters", 2.0, 120.0),
    "t5": ModelFamily(220.0 * M, {8: 0.45}, "T5-base, Raffel et al. 2020; compute by parameters", 2.0, 120.0),
    "llama7": ModelFamily(
        6738.0 * M / 2, {4: 13.8}, "Touvron et al. 2023, 2-byte gradients; compute by parameters", 3.0, 250.0
    ),
    "llama30": ModelFamily(
        32529.0 * M / 2, {4: 66.6}, "Touvron et al. 2023, 2-byte gradients; compute by parameters", 3.0, 250.0
    ),
    "transformer": ModelFamily(
        65.0 * M,
        {16: 0.0904, 32: 0.0942, 64: 0.116, 128: 0.1836, 256: 0.6269},
        f"base model, Vaswani et al. 2017, table 3; {_GAVEL}",
        batch=64,
    ),
    "transformerbig": ModelFamily(
        213.0 * M, {5120: 0.5857}, f"Vaswani et al. 2017, table 3; 8,742 tokens/s: {_EXAMPLES}; a sample is a token"
    ),
    "transformerxl": ModelFamily(
        192.0 * M, {3072: 0.2197}, f"13,981 tokens/s: {_EXAMPLES}, base model; a sample is a token"
    ),
    "gnmt": ModelFamily(160.0 * M, {6144: 0.2811}, f"21,860 tokens/s: {_EXAMPLES}; a sample is a token"),
    "lm": ModelFamily(
        14.0 * M,
        {5: 0.0092, 10: 0.0122, 20: 0.0154, 40: 0.0221, 80: 0.0354},
        "pytorch/examples word_language_model on Wikitext-2: 33,278 words x 200, in and out, two LSTM layers of 200; "
        f"{_GAVEL}",
        overlap=1.5,
        batch=20,
    ),
    "recommendation": ModelFamily(
        8.0 * M,
        {512: 0.0429, 1024: 0.0753, 2048: 0.1339, 4096: 0.256, 8192: 0.3519},
        f"autoencoder on ML-20M, 20,108 items x 200, in and out; {_GAVEL}",
        restart_s=_LOADS_SMALL,
        batch=2048,
    ),
    "ncf": ModelFamily(
        31.8 * M, {131072: 0.0126}, f"10.4 M samples/s: {_EXAMPLES}; NeuMF on ML-20M, 64 factors", 1.5, _LOADS_SMALL
    ),
    "dlrm": ModelFamily(
        2.4 * M,
        {8192: 0.0122},
        f"0.67 M records/s: {_EXAMPLES}; 26 tables of dimension 128 with FP32 activations, dense layers reduced",
        overlap=1.5,
        sample_all_to_all_bytes=26 * 128 * 4.0,
    ),
    "a3c": ModelFamily(1.7 * M, {1: 0.1394}, f"parameters as DQN; {_GAVEL}", 2.0, _LOADS_SMALL),
    "a2c": ModelFamily(1.7 * M, {32: 0.02}, "parameters as DQN; compute assumed", 2.0, _LOADS_SMALL),
    "dqn": ModelFamily(1.7 * M, {32: 0.02}, "Mnih et al. 2015; compute assumed", 2.0, _LOADS_SMALL),
    "cyclegan": ModelFamily(28.3 * M, {1: 0.2259}, f"Zhu et al. 2017, two generators and discriminators; {_GAVEL}"),
    "dcgan": ModelFamily(6.3 * M, {64: 0.0469}, f"pytorch/examples dcgan; {_PAL}, batch assumed"),
    "pointnet": ModelFamily(3.5 * M, {32: 0.28125}, f"Qi et al. 2017; {_PAL}, batch assumed"),
    "deepspeech2": ModelFamily(
        38.0 * M, {20: 0.4}, "Amodei et al. 2016, table of architectures; compute assumed", 2.0, 120.0
    ),
    "graphlearn": ModelFamily(1.0 * M, {512: 0.05}, "assumed: a small graph network"),
}

ALIASES: dict[str, str] = {
    "res18": "resnet18",
    "resnet18cifar10": "resnet18",
    "res50": "resnet50",
    "resnet50v15": "resnet50",
    "resnet50cifar10": "resnet50",
    "inception3": "inceptionv3",
    "inception4": "inceptionv4",
    "shufflenet": "shufflenetv2",
    "shufflenetv2x10": "shufflenetv2",
    "efficientnet": "efficientnetb0",
    "mobilenet": "mobilenetv2",
    "vit": "vitb16",
    "vitbase": "vitb16",
    "bert": "bertbase",
    "roberta": "robertabase",
    "gpt2small": "gpt2",
    "t5base": "t5",
    "llama7b": "llama7",
    "llama30b": "llama30",
    "transformerbase": "transformer",
    "transformerxlbase": "transformerxl",
    "lstm": "lm",
    "neumf": "ncf",
    "ctr": "dlrm",
    "recoder": "recommendation",
}
"""Other names of families, as traces write them."""
