"""Promise: reads of values are counted by line while a step is traced, and not a moment longer."""

import torch

from dynotune.profile.foreign.inside.reads import READS, Reads


def test_reads_are_counted_by_line_and_what_was_there_is_back() -> None:
    before = {name: getattr(torch.Tensor, name) for name in READS}
    own = {name for name in READS if name in torch.Tensor.__dict__}
    value = torch.ones(())
    with Reads() as reads:
        for _ in range(3):
            value.item()
        assert float(value) == 1.0
        assert value
    found = reads.to_json()
    assert (found[0]["what"], found[0]["count"]) == ("item", 3)
    assert {one["what"] for one in found} == {"item", "float", "bool"}
    assert all(one["at"].startswith("test_reads.py:") and one["own"] for one in found)
    assert {name: getattr(torch.Tensor, name) for name in READS} == before
    assert {name for name in READS if name in torch.Tensor.__dict__} == own


def test_what_an_optimizer_reads_of_itself_is_not_the_scripts() -> None:
    weight = torch.nn.Parameter(torch.ones(3))
    optimizer = torch.optim.AdamW([weight], foreach=False)
    weight.grad = torch.ones(3)
    with Reads() as reads:
        optimizer.step()
    assert reads.to_json() == []
