"""Whole nodes whose links are cut in some of all possible ways; `python -m
verification.sim.matrix` takes all."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from verification.sim.matrix import GRAPHS, Graph, graphs, look_at, main
from verification.sim.network import Network

ALL_BUT_ONE_WAY = 0b111110
"""Three nodes; nothing comes from n0 to n1."""


@pytest.mark.parametrize(("nodes", "every"), [("3", 9), ("5", 151)])
def test_a_group_is_as_available_as_its_links_allow(nodes: str, every: int, tmp_path: Path) -> None:
    saved = tmp_path / "found.json"
    share = ["--nodes", nodes, "--every", str(every), "--stay", "5", "--jobs", "1"]
    done = CliRunner().invoke(main, [*share, "--json", str(saved)])
    print(done.output)  # noqa: T201  its volume
    assert done.exit_code == 0, done.output
    assert "all is as promised" in done.output
    assert '"campaign": "partition matrix"' in saved.read_text()


def test_every_link_is_there_in_half_of_the_graphs() -> None:
    for nodes, count in GRAPHS.items():
        every = [Graph(nodes, number, silent=True) for number in range(count)]
        links = sorted(every[-1].links)
        assert len(links) == nodes * (nodes - 1)
        for link in links:
            assert sum(link in graph.links for graph in every) == count // 2
    assert len(graphs([3, 5], 1)) == 2 * 64 + 1024


def test_who_reaches_a_majority_needs_links_in_both_directions() -> None:
    graph = Graph(3, ALL_BUT_ONE_WAY, silent=True)
    assert [graph.reaches_majority(f"n{n}") for n in range(3)] == [True, True, True]
    chain = Graph(3, 0b010111, silent=True)
    assert sorted(chain.links) == [("n0", "n1"), ("n0", "n2"), ("n1", "n0"), ("n2", "n0")]
    assert [chain.reaches_majority(f"n{n}") for n in range(3)] == [True, True, True]
    assert not any(Graph(3, 0b000011, silent=True).reaches_majority(f"n{n}") for n in range(3))


def test_a_group_that_is_cut_to_pieces_unawares_is_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The graph says that all can talk, and nobody can."""
    cut = Network.cut

    def everything(self: Network, source: str, target: str) -> None:
        for one in ("n0", "n1", "n2"):
            for other in ("n0", "n1", "n2"):
                cut(self, one, other)

    monkeypatch.setattr(Network, "cut", everything)
    seen = look_at(Graph(3, ALL_BUT_ONE_WAY, silent=True), 1000)
    assert "no leader that commits within 5000 ms: graph 62 on 3 nodes" in seen.problem
