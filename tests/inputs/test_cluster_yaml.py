from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from trine.core.cluster import Cluster, Links, Node
from trine.inputs.cluster import dump_cluster, parse_cluster

NAMES = st.text(st.characters(exclude_categories=("Cs", "Cn")), min_size=1, max_size=8).filter(lambda s: s.strip())
TRICKY = st.sampled_from(
    ["yes", "null", "1e3", "012", "~", "a: b", "- x", "#", "<<", "=", "node3", "rack1", "gpu", "é"]
)
WORDS = NAMES | TRICKY
SPEEDS = st.none() | st.floats(1e-3, 1e17) | st.integers(1, 4000).map(lambda tenths: tenths * 1e8)
TYPE_LINKS = st.builds(Links, SPEEDS, SPEEDS, SPEEDS)
LATENCIES, SHARES = st.floats(0.0, 10.0), st.floats(0.0, 0.99)
OVERSUBSCRIBED = st.builds(Links, SPEEDS, SPEEDS, st.none(), SPEEDS, st.floats(1.0, 100.0))
DETAILED = st.builds(
    Links, SPEEDS, SPEEDS, SPEEDS, SPEEDS, st.none(), *3 * [LATENCIES], st.floats(1e-3, 10.0), *4 * [SHARES]
)
LINKS = TYPE_LINKS | OVERSUBSCRIBED | DETAILED


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    types, racks = draw(st.lists(WORDS, min_size=1, max_size=3)), draw(st.lists(WORDS, min_size=1, max_size=3))
    named = draw(st.lists(WORDS.filter(lambda s: not s.startswith("node")), max_size=4, unique=True))
    count = draw(st.integers(1, 8))
    nodes = tuple(
        Node(
            named[i] if i < len(named) else f"node{i}",
            draw(st.integers(1, 3)),
            draw(st.sampled_from(types)),
            draw(st.sampled_from(racks)),
        )
        for i in range(count)
    )
    bare = Cluster(nodes)
    type_names = st.sampled_from(bare.types)
    scores = st.lists(st.floats(1e-6, 1e6), min_size=bare.gpu_count, max_size=bare.gpu_count).map(tuple)
    return Cluster(
        nodes,
        draw(st.just("") | WORDS),
        draw(LINKS),
        draw(st.dictionaries(type_names, TYPE_LINKS, max_size=2)),
        draw(st.dictionaries(type_names, st.floats(0, 1e6), max_size=2)),
        draw(st.dictionaries(WORDS, scores, max_size=2)),
    )


@given(clusters())
def test_a_dumped_cluster_loads_back_equal(cluster: Cluster) -> None:
    assert parse_cluster(dump_cluster(cluster), "dumped.yaml") == cluster


@given(st.integers(1, 5), st.integers(1, 9), st.integers(1, 4))
def test_uniform_clusters_are_written_as_counts(racks: int, nodes: int, gpus: int) -> None:
    cluster = Cluster.uniform(racks * nodes, gpus, "v100", nodes)
    text = dump_cluster(cluster)
    assert parse_cluster(text, "dumped.yaml") == cluster
    assert len([line for line in text.splitlines() if not line.startswith("#")]) == 2
