"""How much slower than the median GPU each GPU is, per application class. Values only: ``inputs.variability`` reads
them from a file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from trine.core.cluster import Cluster


@dataclass(frozen=True)
class VariabilityTable:
    """Slowdown by class and GPU id: 1.0 is the median GPU, larger is slower. Without classes every GPU is 1.0."""

    gpu_count: int
    slowdowns: Mapping[str, Sequence[float]] = field(default_factory=dict)
    _by_class: dict[str, list[float]] = field(init=False, repr=False, compare=False)
    _default: list[float] = field(init=False, repr=False, compare=False)
    _ranks: dict[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for name, values in self.slowdowns.items():
            if len(values) != self.gpu_count:
                raise ValueError(f"class {name}: {len(values)} slowdowns for {self.gpu_count} GPUs")
        by_class = {name: list(self.slowdowns[name]) for name in self.classes}
        default = by_class[self.classes[0]] if by_class else [1.0] * self.gpu_count
        object.__setattr__(self, "_by_class", by_class)
        object.__setattr__(self, "_default", default)
        object.__setattr__(self, "_ranks", {name: rank for rank, name in enumerate(by_class)})

    @classmethod
    def flat(cls, gpu_count: int) -> VariabilityTable:
        """All GPUs alike."""
        return cls(gpu_count)

    @classmethod
    def of_cluster(cls, cluster: Cluster) -> VariabilityTable:
        """The slowdowns that the cluster description carries; flat if it carries none."""
        return cls(cluster.gpu_count, cluster.scores)

    @property
    def classes(self) -> tuple[str, ...]:
        """Class names, most sensitive first: names are sorted, 'A' by convention the most sensitive."""
        return tuple(sorted(self.slowdowns))

    def slowdown(self, app_class: str) -> list[float]:
        """Slowdown by GPU id: a shared list, to be read only. An unknown class counts as the most sensitive one."""
        return self._by_class.get(app_class, self._default)

    def class_of(self, app_class: str) -> str:
        """The class whose slowdowns ``slowdown`` gives: an unknown one counts as the most sensitive."""
        return app_class if app_class in self._by_class else (self.classes[0] if self._by_class else "")

    def rank_of(self, app_class: str) -> int:
        """0 for the most sensitive class."""
        return self._ranks.get(app_class, 0)
