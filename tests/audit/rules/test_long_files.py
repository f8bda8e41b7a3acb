"""Promise: a file that repeats itself costs a rule processor time in proportion to its size, not to its square."""

import time
from pathlib import Path

import pytest

from tests.audit.made_up import audited
from tests.audit.rules.scripts import LOOP
from tests.audit.speed import slower

CLOCK = LOOP.replace("model.cuda()", "model.cuda()\nstart = time.time()")
RUN = "torchrun --nproc_per_node 4 train.py\n"
TOTAL = "import os\nimport torch\nworld_size = int(os.environ['WORLD_SIZE'])\ntotal_batch, micro = 256, 4\n"


@pytest.mark.parametrize(
    ("code", "files"),
    [
        ("MSR005", {"a.py": f"import torch\nBATCH = 1  # faster {'1' * 90_000}\n"}),
        ("MSR004", {"a.py": f"{CLOCK}    share = 1 /{' ' * 90_000}2\n"}),
        ("MSR004", {"a.py": f"{CLOCK}    told('{'warmup ' * 12_000}')\n"}),
        ("MSR004", {"a.py": CLOCK + "\n" * 60_000 + "    pass\n"}),
        ("MSR004", {"a.py": CLOCK + "".join(f"    t{i} = time.time() - start\n" for i in range(3_000))}),
        ("DST052", {"run.sh": f"N_GPUS=8\nACC={'$((' * 20_000}\n{RUN}"}),
        ("DST052", {"run.sh": "ACC=$((64 / X))\n" + "".join(f"N{i}GPUS=8\n" for i in range(6_000)) + RUN}),
        ("DST052", {"run.sh": f"{'NPROC' * 18_000}\n{'ACC' * 20_000}\n{RUN}"}),
        ("DST052", {"a.py": TOTAL + "accum = total_batch // micro\n" * 2_000}),
        ("DST052", {"a.py": TOTAL + "k = 1\n" * 3_000 + "accum = total_batch // micro // k\n" * 1_000}),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_processor_time(tmp_path: Path, code: str, files: dict[str, str]) -> None:
    audited(tmp_path / "first", {"a.py": "import torch\n", "run.sh": RUN}, select=(code,))  # imports are not counted
    start = time.process_time()
    audited(tmp_path / "second", files, select=(code,))
    assert time.process_time() - start < 5 * slower()
