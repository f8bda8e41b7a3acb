"""Promise: causes that a reader's projects showed are found in other shapes too, and the nearest right thing is not."""

from pathlib import Path

import pytest

from tests.audit.made_up import audited

FLASH = "model_name_or_path: Qwen/Qwen2.5-0.5B\ndataset_name: d.jsonl\nattn_implementation: flash_attention_2\n"
TOML = "[project]\nname = 'a'\ndependencies = ['torch==2.11.0', 'trl==1.16.0'%s]\n"
AXOLOTL = (
    "%sbase_model: Qwen/Qwen2.5-0.5B\ndatasets: [{path: x, type: alpaca}]\nmicro_batch_size: 2\nsequence_len: 2048\n"
)
USED = {"used.yml": AXOLOTL % "", "run.sh": "axolotl train used.yml\n"}
GROUPED = (
    "from transformers import AutoTokenizer, Trainer, TrainingArguments\ntok = AutoTokenizer.from_pretrained('gpt2')\n"
    "def encode(rows):\n    return tok(rows['text'], truncation=True, max_length=1024, padding=%s)\n"
    "rows = data.map(encode, batched=True)\n"
    "args = TrainingArguments(output_dir='out', train_sampling_strategy='group_by_length')\n"
    "Trainer(model=model, args=args, train_dataset=rows).train()\n"
)
ROWS = (
    "import json\nclass Rows:\n    def __init__(self, path, tokenizer):\n        self.tokenizer = tokenizer\n%s"
    "    def __getitem__(self, at):\n        return %s\n"
)
LAZY = ROWS % ("", "self.tokenizer(self.lines[at])")
EAGER = ROWS % ("        self.rows = [tokenizer(one) for one in open(path)]\n", "self.rows[at]")
LOADS = (
    "import torch\nfrom torch.utils.data import DataLoader\nfrom rows import Rows\ndevice = torch.device('cuda')\n"
    "data = Rows('a.jsonl', tokenizer)\nloader = DataLoader(data, batch_size=4, num_workers=%d)\n"
    "for batch in loader:\n    model(**batch).loss.backward()\n    optimizer.step()\n"
)
MAPPED = (
    "from transformers import AutoTokenizer, Trainer, TrainingArguments\ntok = AutoTokenizer.from_pretrained('gpt2')\n"
    "def prepared(data):\n    def encode(row):\n        return tok(row['text'])\n    return data.%s\n"
    "rows = prepared(data)\nargs = TrainingArguments(output_dir='out', dataloader_num_workers=0)\n"
    "Trainer(model=model, args=args, train_dataset=rows).train()\n"
)
SPAWNS = "import torch.multiprocessing as mp\nimport settings\n\nif __name__ == '__main__':\n    %s\n"
COUNTS = "import os\nRANKS = int(os.environ.get('WORLD_SIZE', '1'))\nACC = 64 // RANKS\n"
COUNTS_LATER = "import os\n\n\ndef ranks():\n    return int(os.environ.get('WORLD_SIZE', '1'))\n"
OWN = (
    "class Collate:\n    def __init__(self, tokenizer):\n        self.pad = %s\n    def __call__(self, rows):\n"
    "        labels = self.ids(rows).clone()\n        labels[%s] = %s\n        return labels\n"
)
TRAINS = (
    "from collate import Collate\nfrom transformers import AutoTokenizer\ntok = AutoTokenizer.from_pretrained('gpt2')\n"
    "tok.pad_token = %s\ncollate = Collate(tok)\n"
)
IS_PAD = "labels == self.pad"
STAYS = (
    "import torch\nfrom transformers import AutoModelForCausalLM\nnet = AutoModelForCausalLM.from_pretrained('gpt2')%s\n"
    "optimizer = torch.optim.AdamW(net.parameters(), lr=1e-5)\nfor batch in loader:\n"
    "    batch = {name: one.to(%s) for name, one in batch.items()}\n    loss = net(**batch).loss\n    loss.backward()\n"
    "    optimizer.step()\n    optimizer.zero_grad()\n"
)
MASKS = (
    "IGNORE = -100\nANSWER = '### Answer:'\ndef encode(text, ids, offsets):\n    labels = %s\n    at = text.find(ANSWER)\n"
    "    if %s:\n        end = at + len(ANSWER)\n        for i, (start, _) in enumerate(offsets):\n"
    "            if start < end:\n                labels[i] = IGNORE\n%s    return ids, labels\n"
)
CHOOSES = (
    "batches = [load(one) for one in paths]\nbest = max(batches, key=lambda one: one['%s'])\nprint(best['batch'])\n"
)


@pytest.mark.parametrize(
    ("code", "files", "found"),
    [
        ("ATT005", {"sft.yaml": FLASH, "requirements.txt": "torch\ntrl[flash-attn]\n"}, False),
        ("ATT005", {"sft.yaml": FLASH, "requirements.txt": "torch\ntrl[quantization]\n"}, True),
        ("ATT005", {"sft.yaml": FLASH, "i.sh": "pip install 'axolotl[flash-attn,deepspeed]==0.12.2' torch\n"}, False),
        ("ATT005", {"sft.yaml": FLASH, "pyproject.toml": TOML % ""}, True),
        ("ATT005", {"sft.yaml": FLASH, "pyproject.toml": TOML % ", 'flash-attn>=2.7'"}, False),
        ("ATT005", {"sft.yaml": FLASH, "pyproject.toml": "[project\nname = "}, False),
        ("CFG010", {**USED, "old.yml": AXOLOTL % "# the first try\n"}, True),
        ("CFG010", {**USED, "old.yml": AXOLOTL % "# started by hand, when the cluster is free\n"}, False),
        ("CFG010", {**USED, "old.yml": AXOLOTL % "# axolotl train configs/old.yml\n"}, False),
        ("CFG010", {**USED, "old.yml": AXOLOTL % "# kept for the record of table 2\n"}, False),
        ("PAD004", {"train.py": GROUPED % "'max_length'"}, True),
        ("PAD004", {"train.py": GROUPED % "False"}, False),
        ("HST005", {"train.py": LOADS % 0, "rows.py": LAZY}, True),
        ("HST005", {"train.py": LOADS % 4, "rows.py": LAZY}, False),
        ("HST005", {"train.py": LOADS % 0, "rows.py": EAGER}, False),  # once, before the first step
        ("HST005", {"train.py": MAPPED % "map(encode)"}, False),
        ("HST005", {"train.py": MAPPED % "with_transform(encode)"}, False),  # what it makes is not followed
        ("DST051", {"train.py": SPAWNS % "mp.spawn(worker, nprocs=4)", "settings.py": COUNTS}, True),
        ("DST051", {"train.py": SPAWNS % "mp.start_processes(worker, nprocs=4)", "settings.py": COUNTS}, True),
        ("DST051", {"train.py": SPAWNS % "worker()", "settings.py": COUNTS}, False),  # torchrun's may start it
        ("DST051", {"train.py": SPAWNS % "mp.spawn(worker, nprocs=4)", "settings.py": COUNTS_LATER}, False),
        (
            "MSK003",
            {"t.py": TRAINS % "tok.eos_token", "collate.py": OWN % ("tokenizer.pad_token_id", IS_PAD, -100)},
            True,
        ),
        (
            "MSK003",
            {"t.py": TRAINS % "tok.eos_token", "collate.py": OWN % ("tokenizer.pad_token_id", IS_PAD, "IGNORE_INDEX")},
            True,
        ),
        ("MSK003", {"t.py": TRAINS % "'<pad>'", "collate.py": OWN % ("tokenizer.pad_token_id", IS_PAD, -100)}, False),
        (
            "MSK003",
            {"t.py": TRAINS % "tok.eos_token", "collate.py": OWN % ("tokenizer.pad_token_id", "mask == 0", -100)},
            False,
        ),
        (
            "MSK003",
            {"t.py": TRAINS % "tok.eos_token", "collate.py": OWN % ("0", IS_PAD, -100)},
            False,
        ),  # its own number
        ("HST004", {"train.py": STAYS % ("", "net.device")}, True),
        ("HST004", {"train.py": STAYS % (".to('cuda')", "net.device")}, False),
        ("HST004", {"train.py": STAYS % ("\nnet.cuda()", "net.device")}, False),
        ("HST004", {"train.py": STAYS % ("", "'cuda'")}, False),  # it stops at its first batch
        ("MSK050", {"train.py": MASKS % ("list(ids)", "at >= 0", "")}, True),
        ("MSK050", {"train.py": MASKS % ("ids.copy()", "ANSWER in text", "")}, True),
        ("MSK050", {"train.py": MASKS % ("list(ids)", "at >= 0", "    else:\n        return None\n")}, False),
        (
            "MSK050",
            {"train.py": MASKS % ("list(ids)", "at >= 0", "    else:\n        raise ValueError(text)\n")},
            False,
        ),
        ("MSK050", {"train.py": MASKS % ("[IGNORE] * len(ids)", "at >= 0", "")}, False),
        ("MSR005", {"pick.py": CHOOSES % "train_steps_per_second"}, True),
        ("MSR005", {"pick.py": CHOOSES % "it_per_s"}, True),
        ("MSR005", {"pick.py": CHOOSES % "train_samples_per_second"}, False),
        ("MSR005", {"pick.py": CHOOSES % "eval_loss"}, False),
    ],
)
def test_it_is_found_and_its_neighbour_is_not(code: str, files: dict[str, str], found: bool, tmp_path: Path) -> None:
    result = audited(tmp_path, files, select=(code,))
    assert bool(result.findings) is found, [one.message for one in result.findings]
