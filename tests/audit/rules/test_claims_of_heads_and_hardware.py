"""Promise: epochs, precision, rows of an update and the machine that a text names are held against the run."""

from pathlib import Path

import pytest

from tests.audit.made_up import audited

_TRAIN = (
    '{}from transformers import Trainer, TrainingArguments\n{}\nargs = TrainingArguments(\n    "out",\n'
    "    per_device_train_batch_size=16,\n    gradient_accumulation_steps=4,\n    num_train_epochs=4,\n    {}=True,\n)\n"
    "Trainer(model=m, args=args, train_dataset=d).train()\n"
)
_LOOP = (
    '"""Ranker.\n\n{}\n"""\nfrom accelerate import Accelerator\nacc = Accelerator(mixed_precision="{}")\n'
    "net, opt, loader = acc.prepare(net, opt, loader)\nfor epoch in range(3):\n    for batch in loader:\n"
    "        loss = net(**batch).loss\n        acc.backward(loss)\n        opt.step()\n        opt.zero_grad()\n"
)
_ONE = 'import os\nos.environ["CUDA_VISIBLE_DEVICES"] = "0"\n'


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"a.py": _TRAIN.format('"""As in the paper: batch 16, no accumulation, 10 epochs."""\n', "", "bf16")}, True),
        ({"a.py": _TRAIN.format('"""As in the paper: batch 16, no accumulation, 4 epochs."""\n', "", "bf16")}, False),
        ({"a.py": _TRAIN.format('"""The paper has batch 16, 10 epochs."""\n', "", "bf16")}, False),
        ({"a.py": _TRAIN.format(_ONE, "# one update sees 256 abstracts", "bf16")}, True),
        ({"a.py": _TRAIN.format(_ONE, "# one update sees 64 abstracts", "bf16")}, False),
        ({"a.py": _TRAIN.format(_ONE, "# one update takes 12 seconds", "bf16")}, False),
        ({"a.py": _TRAIN.format("", "# one update sees 256 abstracts", "bf16")}, False),
        ({"a.py": _LOOP.format("Trained in bfloat16 autocast, since fp16 overflowed.", "fp16")}, True),
        ({"a.py": _LOOP.format("Trained in bfloat16 autocast, since fp16 overflowed.", "bf16")}, False),
        ({"a.py": _LOOP.format("Could be trained in bfloat16.", "fp16")}, False),
        ({"a.py": _TRAIN.format('"""Trained in bf16."""\n', "", "fp16")}, True),
        ({"a.py": _TRAIN.format('"""Trained in fp16."""\n', "", "fp16")}, False),
        (
            {
                "a.py": _TRAIN.format("", "", "bf16"),
                "run.sh": "torchrun --nproc_per_node=2 a.py\n",
                "README.md": "Hardware: one node with eight A100 80GB. A run takes two days.\n",
            },
            True,
        ),
        (
            {
                "a.py": _TRAIN.format("", "", "bf16"),
                "run.sh": "torchrun --nproc_per_node=8 a.py\n",
                "README.md": "Hardware: one node with eight A100 80GB. A run takes two days.\n",
            },
            False,
        ),
    ],
)
def test_what_texts_say(tmp_path: Path, files: dict[str, str], said: bool) -> None:
    assert bool(audited(tmp_path, files, select=("CFG011",)).findings) is said
