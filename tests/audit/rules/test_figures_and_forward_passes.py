"""Promise: layers that ask the device in loops or in methods of their own are found, and clocks that are read twice."""

from pathlib import Path

import pytest

from tests.audit.rules.scripts import said

_EXPERTS = """
import torch
from torch import nn
class Experts(nn.Module):
    def forward(self, x):
        chosen = self.gate(x).argmax(-1)
        return self.mixed(x, chosen)
    def mixed(self, x, chosen):
        out = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            here = chosen == number
            {line}
        return out
    def shown(self, x):
        if x.isnan().any():
            print(x)
"""


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("if here.any(): out[here] = expert(x[here])", True),
        ("if here.sum() > 0: out[here] = expert(x[here])", True),
        ("out = out + here.unsqueeze(-1) * expert(x)", False),
    ],
)
def test_a_layer_that_asks_for_each_expert(tmp_path: Path, line: str, found: bool) -> None:
    assert bool(said("HST002", tmp_path, _EXPERTS.format(line=line))) is found


_PARTS = """
import time, torch
model.cuda()
for step, (x, y) in enumerate(loader):
    start = time.perf_counter()
    loss = crit(model(x.cuda()), y.cuda())
    forward = time.perf_counter() - start
    loss.backward()
    {wait}
    backward = time.perf_counter() - start - forward
    opt.step()
    opt.zero_grad()
"""


@pytest.mark.parametrize(("wait", "found"), [("pass", True), ("torch.cuda.synchronize()", False)])
def test_parts_of_a_step_by_a_clock(tmp_path: Path, wait: str, found: bool) -> None:
    assert bool(said("MSR002", tmp_path, _PARTS.format(wait=wait))) is found


_BEST = """
import time, torch
best = float("inf")
for _ in range(100):
    torch.cuda.synchronize(); start = time.time()
    model(x).sum().backward()
    torch.cuda.synchronize(); {kept}
print("images/s", {speed})
"""


@pytest.mark.parametrize(
    ("kept", "speed", "found"),
    [
        ("best = min(best, time.time() - start)", "8 / best", True),
        ("best = min(best, time.time() - start)", "n_images / best", True),
        ("total = total + time.time() - start", "800 / total", False),
    ],
)
def test_the_fastest_pass(tmp_path: Path, kept: str, speed: str, found: bool) -> None:
    assert bool(said("MSR007", tmp_path, _BEST.format(kept=kept, speed=speed))) is found
