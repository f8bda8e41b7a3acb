"""Promise: a file of settings that nothing names is said where the project's programs take none like it by another way."""

from pathlib import Path

import pytest

from tests.audit.made_up import audited

_DS = '{"zero_optimization": {"stage": 3}, "train_micro_batch_size_per_gpu": "auto", "bf16": {"enabled": "auto"}}'
_TRAIN = (
    "from transformers import HfArgumentParser, Trainer, TrainingArguments\n"
    "(args,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()\nTrainer(model=m, args=args).train()\n"
)
_LORA = '{"r": 64, "lora_alpha": 128, "lora_dropout": 0.1, "task_type": "CAUSAL_LM"}'
_CALL = "import sys, json\nfrom peft import LoraConfig\n{}lora = LoraConfig({})\n"
_ONES = 'r=16, lora_alpha=32, lora_dropout=0.0, task_type="CAUSAL_LM"'
_TRL = "model_name_or_path: a/b\ndataset_name: c/d\nlearning_rate: 1.0e-5\noutput_dir: out\n"
_COMPOSE = 'services:\n  a:\n    command: ["trl", "sft", "--config", "/cfg/sft.yaml"]\n{}'
_MODULE = "LR = 1e-5\nEPOCHS = 3\nBATCH = 8\n"
_BASE = "from conf import base\nprint(base.LR, base.EPOCHS, base.BATCH)\n"
_BOTH = "from conf import base, long\nprint(base.LR, long.LR)\n"
_ANY = "import importlib, sys\nfrom conf import base\nc = importlib.import_module(sys.argv[1])\n"
_OPENS = "d = json.load(open('lora.json'))\n"
_BY_NAME = "n = 'a'\nd = json.load(open(f'{n}.json'))\n"
_GO = "python train.py\n"
_TWO = {"conf/base.py": _MODULE, "conf/long.py": _MODULE}
_START = "torchrun --nproc_per_node 2 train.py --output_dir out --bf16"


@pytest.mark.parametrize(
    ("files", "unused"),
    [
        ({"ds.json": _DS, "train.py": _TRAIN, "run.sh": f"{_START}\n"}, "ds.json"),
        ({"ds.json": _DS, "train.py": _TRAIN, "run.sh": f"{_START} --deepspeed ds.json\n"}, ""),
        ({"ds.json": _DS, "train.py": _TRAIN, "run.sh": f'{_START} "$@"\n'}, ""),
        ({"ds.json": _DS, "train.py": _TRAIN, "run.sh": "deepspeed train.py --output_dir out\n"}, ""),
        ({"ds.json": _DS, "train.py": _TRAIN, "run.sh": f"{_START}\n", "README.md": "`ds.json` is for four cards.\n"}, ""),
        ({"lora.json": _LORA, "train.py": _CALL.format("", _ONES), "run.sh": "python train.py a.json\n"}, "lora.json"),
        ({"lora.json": _LORA, "train.py": _CALL.format("", _ONES), "run.sh": "python train.py lora.json\n"}, ""),
        ({"lora.json": _LORA, "train.py": _CALL.format("", _ONES), "run.sh": 'python train.py "$1"\n'}, ""),
        ({"lora.json": _LORA, "train.py": _CALL.format(_OPENS, "**d"), "run.sh": _GO}, ""),
        ({"lora.json": _LORA, "train.py": _CALL.format(_BY_NAME, _ONES), "run.sh": _GO}, ""),
        ({"adapter_config.json": _LORA, "train.py": _CALL.format("", _ONES), "run.sh": "python train.py\n"}, ""),
        ({"cfg/sft.yaml": _TRL, "cfg/kto.yaml": _TRL + "beta: 0.1\n", "compose.yaml": _COMPOSE.format("")}, "cfg/kto.yaml"),
        (
            {
                "cfg/sft.yaml": _TRL,
                "cfg/kto.yaml": _TRL + "beta: 0.1\n",
                "compose.yaml": _COMPOSE.format("  b:\n    command: trl kto --config /cfg/kto.yaml\n"),
            },
            "",
        ),
        (_TWO | {"train.py": _BASE}, "conf/long.py"),
        (_TWO | {"train.py": _BOTH}, ""),
        (_TWO | {"train.py": _ANY}, ""),
    ],
)  # fmt: skip
def test_files_of_settings(tmp_path: Path, files: dict[str, str], unused: str) -> None:
    found = audited(tmp_path, files, select=("CFG010",)).findings
    assert {one.place.file for one in found} == ({unused} if unused else set())
