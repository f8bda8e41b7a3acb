"""Promise: a value is the same value wherever a project keeps it: another file, a parameter, a dictionary that is built up,
a configuration that the script or its launcher names. The nearest right thing says nothing."""

from pathlib import Path

import pytest

from tests.audit.made_up import audited

READS = """import argparse, yaml
from transformers import AutoModelForCausalLM
from trl import SFTConfig, SFTTrainer
def parse():
    p = argparse.ArgumentParser()
    p.add_argument("-c", "--config"%s)
    return p.parse_args()
def main():
    with open(parse().config) as f:
        cfg = yaml.safe_load(f)
    model = AutoModelForCausalLM.from_pretrained(cfg["model"]["name"], attn_implementation=cfg["model"]["attention"])
    SFTTrainer(model=model, args=SFTConfig(**cfg["training"]), train_dataset=rows).train()
main()
"""
ARGV = (
    "import sys, yaml\nfrom trl import SFTConfig, SFTTrainer\ncfg = yaml.safe_load(open(sys.argv[1]))\n"
    "kw = dict(bf16=True)\n"
    'kw.update(cfg["training"])\nkw["model_init_kwargs"] = {"attn_implementation": cfg["model"]["attention"]}\n'
    'SFTTrainer(cfg["model"]["name"], args=SFTConfig(**kw), train_dataset=rows).train()\n'
)
FIRE = (
    "import fire, yaml\nfrom trl import SFTConfig, SFTTrainer\ndef main(config):\n    cfg = yaml.safe_load(open(config))\n"
    '    init = {"attn_implementation": cfg["model"]["attention"]}\n'
    '    args = SFTConfig(model_init_kwargs=init, **cfg["training"])\n'
    '    SFTTrainer(cfg["model"]["name"], args=args, train_dataset=rows).train()\nfire.Fire(main)\n'
)
OWN_YAML = (
    "model:\n  name: meta-llama/Llama-3.1-8B\n  attention: %s\ntraining:\n  output_dir: out\n  packing: true\n"
    "  max_length: 2048\n  per_device_train_batch_size: 4\n"
)
DENSE, FLASH = OWN_YAML % "sdpa", OWN_YAML % "flash_attention_2"
LAUNCHED = "#!/bin/bash\naccelerate launch --config_file acc.yaml train.py --config %s\n"
ACC = "compute_environment: LOCAL_MACHINE\nnum_machines: 1\nnum_processes: 1\nmixed_precision: bf16\n"
TOKENIZES = (
    "import settings\ndef tokenize(tok):\n    def encode(batch):\n"
    '        return tok(batch["text"], truncation=True, padding=settings.PADDING, max_length=settings.LONGEST)\n'
    "    return encode\n"
)
MAPS = (
    "from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer, TrainingArguments\nfrom data import tokenize\n"
    'tok = AutoTokenizer.from_pretrained("gpt2")\nrows = data.map(tokenize(tok), batched=True)\n'
    'model = AutoModelForCausalLM.from_pretrained("gpt2")\n'
    'Trainer(model=model, args=TrainingArguments(output_dir="o", bf16=True), train_dataset=rows).train()\n'
)
CACHED = (
    "def tokenise(rows, tok, cfg):\n"
    '    return rows.map(lambda r: tok(r["text"]), load_from_cache_file=cfg["cache"], num_proc=cfg["workers"])\n'
)
CACHES = (
    "from datasets import load_dataset\nfrom prepare import tokenise\n"
    'rows = tokenise(load_dataset("a/b", split="train"), tok, {"cache": %s, "workers": 8})\n'
)

FOUND = [
    (
        "ATT001",
        {"train.py": READS % ", required=True", "c/a.yaml": DENSE, "run.sh": "python train.py --config c/a.yaml\n"},
    ),
    ("ATT001", {"train.py": READS % "", "c/a.yaml": DENSE, "run.sh": "python train.py -c c/a.yaml\n"}),
    ("ATT001", {"train.py": READS % "", "a.yaml": DENSE, "acc.yaml": ACC, "run.sh": LAUNCHED % "a.yaml"}),
    (
        "ATT001",
        {"train.py": READS % ', default="b.yaml"', "a.yaml": DENSE, "b.yaml": FLASH, "r.sh": LAUNCHED % "a.yaml"},
    ),
    ("ATT001", {"train.py": ARGV, "a.yaml": DENSE, "run.sh": "python train.py a.yaml\n"}),
    ("ATT001", {"train.py": FIRE, "a.yaml": DENSE, "run.sh": "python train.py --config a.yaml\n"}),
    (
        "ATT001",
        {
            "train.py": READS % "",
            "a.yaml": DENSE,
            "b.yaml": FLASH,
            "run.sh": "python train.py --config b.yaml\npython train.py --config a.yaml\n",
        },
    ),
    ("PAD005", {"train.py": MAPS, "data.py": TOKENIZES, "settings.py": 'PADDING = "max_length"\nLONGEST = 2048\n'}),
    ("HST006", {"train.py": CACHES % "False", "prepare.py": CACHED}),
]
RIGHT = [
    ("ATT001", {"train.py": READS % "", "c/a.yaml": FLASH, "run.sh": "python train.py --config c/a.yaml\n"}),
    (
        "ATT001",
        {"train.py": READS % ', default="b.yaml"', "a.yaml": FLASH, "b.yaml": DENSE, "r.sh": LAUNCHED % "a.yaml"},
    ),
    ("ATT001", {"train.py": ARGV, "a.yaml": FLASH, "run.sh": "python train.py a.yaml\n"}),
    ("PAD005", {"train.py": MAPS, "data.py": TOKENIZES, "settings.py": "PADDING = False\nLONGEST = 2048\n"}),
    ("PAD005", {"train.py": MAPS, "data.py": TOKENIZES, "settings.py": 'PADDING = "max_length"\nLONGEST = 64\n'}),
    ("HST006", {"train.py": CACHES % "True", "prepare.py": CACHED}),
]


@pytest.mark.parametrize(("code", "files"), FOUND)
def test_followed_to_where_it_stands(code: str, files: dict[str, str], tmp_path: Path) -> None:
    assert [one.code for one in audited(tmp_path, files, select=(code,)).findings] == [code]


@pytest.mark.parametrize(("code", "files"), RIGHT)
def test_the_nearest_right_thing(code: str, files: dict[str, str], tmp_path: Path) -> None:
    assert not audited(tmp_path, files, select=(code,)).findings


GOES = (
    "import torch\nfrom metrics import Meter, accuracy\nmodel.cuda()\nmeter = Meter()\n"
    "for step, batch in enumerate(loader):\n    out = model(**batch)\n    loss = out.loss\n    loss.backward()\n"
    "    optimizer.step()\n    optimizer.zero_grad()\n    %s\n"
)
METRICS = (
    "class Meter:\n    def __init__(self):\n        self.total = 0.0\n    def update(self, loss, step=0):\n"
    "        %sself.total += loss.item()\ndef accuracy(logits, labels):\n"
    "    return (logits.argmax(-1) == labels).float().mean()%s\n"
)
WAITS = [
    ("meter.update(loss)", METRICS % ("", "")),
    ("accuracy(out.logits, batch['labels'])", METRICS % ("", ".item()")),
    ("if loss < 0.1:\n        break", ""),
    ("if loss.isnan():\n        break", ""),
    ("if not loss.isfinite().all():\n        break", ""),
    ("bar.set_postfix(loss=f'{loss:.3f}')", ""),
    ("wandb.log({'loss': loss})", ""),
    ("writer.add_scalar('loss', loss, step)", ""),
    ("if step % 1 == 0:\n        seen = loss.item()", ""),
]
RUNS_AHEAD = [
    ("meter.update(loss)", METRICS % ("if step % 100 == 0: ", "")),
    ("accuracy(out.logits, batch['labels'])", METRICS % ("", "")),
    ("if step % 50 == 0:\n        meter.update(loss)", METRICS % ("", "")),
    ("if loss is None:\n        break", ""),
    ("if step < 10:\n        break", ""),
    ("wandb.log({'step': step})", ""),
    ("history.write('loss')", ""),
    ("if step % 10 == 0:\n        seen = loss.item()", ""),
]


@pytest.mark.parametrize(("line", "metrics"), WAITS)
def test_a_wait_each_step(line: str, metrics: str, tmp_path: Path) -> None:
    files = {"train.py": GOES % line, "metrics.py": metrics}
    assert [one.code for one in audited(tmp_path, files, select=("HST001",)).findings] == ["HST001"]


@pytest.mark.parametrize(("line", "metrics"), RUNS_AHEAD)
def test_no_wait_each_step(line: str, metrics: str, tmp_path: Path) -> None:
    files = {"train.py": GOES % line, "metrics.py": metrics}
    assert not audited(tmp_path, files, select=("HST001",)).findings


LAYER = "import torch\nimport torch.nn as nn\n%sclass Mine(%s):\n    def forward(self, x, mask):\n        %s\n"
BASE = "from base import Own\n"
FORWARDS = [
    (LAYER % ("", "nn.Linear", "peak = float(x.abs().max())\n        return x / peak"), True),
    (LAYER % (BASE, "Own", "peak = x.std().item()\n        return x / peak"), True),
    (
        LAYER % ("", "nn.Module", "return self.send(x)\n    def send(self, x):\n        return x.split(x.tolist())"),
        True,
    ),
    (LAYER % ("", "nn.Module", "if mask.sum() == 0:\n            return x\n        return x * mask"), True),
    (LAYER % ("", "nn.Linear", "width = float(x.size(-1))\n        return x / width"), False),
    (LAYER % ("", "nn.Module", "if x.shape[0] == 0:\n            return x\n        return x * mask"), False),
    (LAYER % ("", "Other", "peak = x.std().item()\n        return x / peak"), False),
]


@pytest.mark.parametrize(("text", "waits"), FORWARDS)
def test_a_wait_in_a_layer(text: str, waits: bool, tmp_path: Path) -> None:
    files = {"layers.py": text, "base.py": "import torch.nn as nn\nclass Own(nn.Module):\n    pass\n"}
    assert len(audited(tmp_path, files, select=("HST002",)).findings) == waits


KWARGS = """from transformers import AutoModelForCausalLM
from trl import SFTConfig, SFTTrainer

model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-7B", attn_implementation="sdpa")


def args_of(rows, **more):
    return SFTConfig(output_dir="o", per_device_train_batch_size=rows, %s, **more)


def trainer_of(args):
    return SFTTrainer(model=model, args=args, train_dataset=data)


for rows in (1, 8):
    trial = trainer_of(args_of(rows, max_steps=40%s))
    trial.train()
    model = trial.model.unload()
trainer_of(args_of(1%s)).train()
"""


@pytest.mark.parametrize(
    ("given", "first", "last", "packing"),
    [
        ("packing=True", "", "", True),
        ("bf16=True", ", packing=True", ", packing=True", True),
        ("bf16=True", ", packing=True", "", None),  # one call in two does so
        ("bf16=True", "", "", False),
    ],
)
def test_what_functions_hand_on_is_followed(
    given: str, first: str, last: str, packing: bool | None, tmp_path: Path
) -> None:
    """`**more` holds what the calls give, and a model that a trial gives back is what it got."""
    job = audited(tmp_path, {"t.py": KWARGS % (given, first, last)}).project.jobs[0]
    assert job.get("packing") is packing
    assert job.get("model_name_or_path") == "Qwen/Qwen2.5-7B"
