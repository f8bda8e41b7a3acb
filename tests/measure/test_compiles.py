"""Promise: it is known that dynamo has given a function up, after which it compiles nothing and says nothing."""

import subprocess
import sys

import pytest

SCRIPT = """
import sys
import torch
from dynotune.measure.compiles import graphs, limit, limits_met

assert (graphs(), limits_met(), limit()) == (0, 0, None), "nothing is imported to ask"
model = torch.compile(torch.nn.Linear(8, 8), backend="eager", dynamic=False)
for i in range(int(sys.argv[1])):
    model(torch.randn(i + 2, 8))
print(graphs(), limits_met(), limit())
"""


@pytest.mark.parametrize(("lengths", "said"), [(3, "3 0 8"), (8, "8 0 8"), (12, "8 1 8")])
def test_a_limit_that_was_met(lengths: int, said: str) -> None:
    """In a process of its own, whose counters are its own."""
    done = subprocess.run([sys.executable, "-c", SCRIPT, str(lengths)], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == said
