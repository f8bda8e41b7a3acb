"""Promise: causes that a reader's projects showed are found in other shapes too, and the nearest right thing is not."""

from pathlib import Path

import pytest

from tests.audit.made_up import audited

FLASH = "model_name_or_path: Qwen/Qwen2.5-0.5B\ndataset_name: d.jsonl\nattn_implementation: flash_attention_2\n"
TOML = "[project]\nname = 'a'\ndependencies = ['torch==2.11.0', 'trl==1.16.0'%s]\n"
AXOLOTL = (
    "%sbase_model: Qwen/Qwen2.5-0.5B\ndatasets: [{path: x, type: alpaca}]\nmicro_batch_size: 2\nsequence_len: 2048\n"
)
OF_PAIRS = "import trl\nargs = trl.%sConfig(output_dir='o', %s)\n"
REWARD = "model_name_or_path: Qwen/Qwen2.5-0.5B\ndataset_name: d.jsonl\noutput_dir: o\n"
ANSWERS = (
    "base_model: Qwen/Qwen2.5-0.5B\ndatasets: [{path: x, type: %s}]\nmicro_batch_size: 2\nsequence_len: 2048\n# %s\n"
    "train_on_inputs: false\n"
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


COMMAND = "python train.py --lr 1e-5 --fast\n"
PARSES = (
    "import argparse\np = argparse.ArgumentParser()\np.add_argument('--lr')\n"
    "p.add_argument('--fast', action='store_true'%s)\n"
    "args = p.parse_args()\nprint(args.lr)\n%s"
)
FIELDS = (
    "from dataclasses import dataclass, field\nfrom transformers import HfArgumentParser\n@dataclass\nclass Mine%s:\n"
    "    lr: float = field(default=1e-5)\n    fast: bool = False\n"
    "(mine,) = HfArgumentParser((Mine,)).parse_args_into_dataclasses()\nprint(mine.lr)\n%s"
)
LOOP = (
    "import argparse\nfrom accelerate import Accelerator\np = argparse.ArgumentParser()\n"
    "p.add_argument('--bf16', action='store_true')\nargs = p.parse_args()\naccelerator = Accelerator(%s)\n"
    "for batch in loader:\n    accelerator.backward(model(**batch).loss)\n    optimizer.step()\n"
)
NO = "compute_environment: LOCAL_MACHINE\nnum_machines: 1\nnum_processes: 2\nmixed_precision: 'no'\n"
LAUNCHES = "accelerate launch --config_file a.yaml train.py --bf16\n"
RUN_YAML = {"run.yaml": "model: a/b\nlr: 1.0e-5\nbeta: 0.3\n", "run.sh": "python train.py --config run.yaml\n"}
READS = "import sys, yaml\ncfg = yaml.safe_load(open(sys.argv[2]))\nprint(cfg['model'], cfg.get('lr'))\n%s"
HANDS = (
    "import sys, json\ndef made(options):\n    return {key: options[key] for key in ('model', 'lr') if key in options}%s\n"
    "def main():\n    held = json.load(open(sys.argv[2]))\n    train(**made(held))\n"
)
RUN_JSON = {"run.json": '{"model": "a/b", "lr": 1e-5, "beta": 0.3}', "run.sh": "python train.py --config run.json\n"}
SFT = "model_name_or_path: Qwen/Qwen2.5-0.5B\ndataset_name: d.jsonl\nper_device_train_batch_size: 4\n"
BATCH = f"{SFT}gradient_accumulation_steps: 2  # %s\n"
DEEP = {
    "ds.json": '{"zero_optimization": {"stage": 2}, "bf16": {"enabled": "auto"}}',
    "sft.yaml": f"{SFT}deepspeed: ds.json\n",
}
OFFLOADED = '{"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}}}'
PAIRS = (
    "from trl import DPOConfig, DPOTrainer\nDPOTrainer(model='a/b', args=DPOConfig(output_dir='o'), train_dataset=d)\n"
)
PLAIN = (
    "from trl import SFTConfig, SFTTrainer\nSFTTrainer(model='a/b', args=SFTConfig(output_dir='o'), train_dataset=d)\n"
)
STATES = (
    "from accelerate import Accelerator\naccelerator = Accelerator()\n%sfor epoch in range(3):\n"
    "    for batch in loader:\n        accelerator.backward(model(**batch).loss)\n        optimizer.step()\n"
    "        optimizer.zero_grad()\n    %s\n"
)
BY_HAND = "torch.save({'m': model.state_dict(), 'o': optimizer.state_dict()}, 'last.pt')"
SPREAD = (
    "import torch\nimport torch.multiprocessing as mp\nfrom torch.nn.parallel import DistributedDataParallel as DDP\n"
    "from transformers import AutoModelForCausalLM\nBASE = '%s'\n"
    "def worker(rank, args):\n    source = args.out if done(args) else BASE\n"
    "    model = DDP(AutoModelForCausalLM.from_pretrained(source).cuda(), find_unused_parameters=%s)\n"
    "    for batch in loader:\n        model(**batch).loss.backward()\n        optimizer.step()\n"
    "if __name__ == '__main__':\n    mp.spawn(worker, args=(options(),), nprocs=2)\n"
)
OLD_AXOLOTL = {"requirements.txt": "axolotl==0.12.2\n", "run.sh": "axolotl train a.yml\n"}
SHORT = "base_model: Qwen/Qwen2.5-0.5B\ndatasets: [{path: x, type: alpaca}]\nmicro_batch_size: 2\n"
LARGE = "base_model: meta-llama/Llama-3.1-8B\ndatasets: [{path: x, type: alpaca}]\nmicro_batch_size: 2\nsequence_len: 8192\n"


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
        ("HST005", {"train.py": MAPPED % "with_transform(encode)"}, True),
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
        ("HST004", {"train.py": STAYS % ("", "'cuda'")}, True),  # it stops at its first batch
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
        ("CFG009", {"run.sh": COMMAND, "train.py": PARSES % ("", "")}, True),
        ("CFG009", {"run.sh": COMMAND, "train.py": PARSES % ("", "wandb.init(config=vars(args))\n")}, True),
        ("CFG009", {"run.sh": COMMAND, "train.py": PARSES % ("", "if args.fast:\n    go()\n")}, False),
        ("CFG009", {"run.sh": COMMAND, "train.py": PARSES % ("", "main(**vars(args))\n")}, False),
        ("CFG009", {"run.sh": COMMAND, "train.py": PARSES % (", dest='quick'", "print(args.quick)\n")}, False),
        ("CFG009", {"run.sh": COMMAND, "train.py": PARSES % ("", "getattr(args, 'fast')\n")}, False),
        ("CFG009", {"run.sh": "python train.py --lr 1\n", "train.py": PARSES % ("", "")}, False),  # nobody gives it
        ("CFG009", {"run.sh": "python train.py --fast True\n", "train.py": FIELDS % ("", "")}, True),
        ("CFG009", {"run.sh": "python train.py --fast True\n", "train.py": FIELDS % ("", "print(mine.fast)\n")}, False),
        ("CFG009", {"run.sh": "python train.py --fast True\n", "train.py": FIELDS % ("(Theirs)", "")}, False),
        ("PRC002", {"run.sh": LAUNCHES, "a.yaml": NO, "train.py": LOOP % ""}, True),
        ("CFG009", {"run.sh": LAUNCHES, "a.yaml": NO, "train.py": LOOP % ""}, False),  # said once
        (
            "PRC002",
            {"run.sh": LAUNCHES, "a.yaml": NO, "train.py": LOOP % "mixed_precision='bf16' if args.bf16 else 'no'"},
            False,
        ),
        ("CFG017", {**RUN_YAML, "train.py": READS % ""}, True),
        ("CFG017", {**RUN_YAML, "train.py": READS % "print(cfg['beta'])\n"}, False),
        ("CFG017", {**RUN_YAML, "train.py": READS % "train(**cfg)\n"}, False),
        ("CFG017", {**RUN_YAML, "train.py": READS % "for key in cfg:\n    use(key)\n"}, False),
        ("CFG017", {**RUN_JSON, "train.py": HANDS % ""}, True),
        ("CFG017", {**RUN_JSON, "train.py": HANDS % " | dict(options.items())"}, False),
        ("CFG011", {"sft.yaml": BATCH % "4 cards x 4 rows x 2 = 64 rows"}, True),
        ("CFG011", {"sft.yaml": BATCH % "8 gpus * 4 * 2 = 32"}, True),
        ("CFG011", {"sft.yaml": BATCH % "8 cards x 4 rows x 2 = 64 rows"}, False),
        ("CFG011", {"sft.yaml": BATCH % "image of 16 x 16 = 250 or so"}, False),
        ("CFG011", {"sft.yaml": BATCH % "36 examples per update"}, True),
        ("CFG011", {"sft.yaml": BATCH % "64 examples per update"}, False),
        ("CFG011", {"sft.yaml": BATCH % "ran 4 x 2 = 8.5 rows a step"}, False),
        ("CFG011", {**DEEP, "run.sh": "# ZeRO-3 on four cards\ntrl sft --config sft.yaml\n"}, True),
        (
            "CFG011",
            {**DEEP, "run.sh": "# deepspeed, optimizer offloaded to the CPU\ntrl sft --config sft.yaml\n"},
            True,
        ),
        ("CFG011", {**DEEP, "run.sh": "# ZeRO stage 2 on four cards\ntrl sft --config sft.yaml\n"}, False),
        ("CFG011", {**DEEP, "run.sh": "# ZeRO-3 was slower\ntrl sft --config sft.yaml\n"}, False),
        ("CFG011", {**DEEP, "ds.json": OFFLOADED, "run.sh": "# ZeRO-3, offload\ntrl sft --config sft.yaml\n"}, False),
        ("ENV007", {"t.py": PAIRS, "requirements.txt": "trl==0.11.4\ntransformers==4.46.3\n"}, True),
        ("ENV007", {"t.py": PAIRS, "requirements.txt": "trl==0.12.1\ntransformers==4.47.0\n"}, True),
        ("ENV007", {"t.py": PAIRS, "requirements.txt": "trl==0.11.4\ntransformers==4.45.2\n"}, False),
        ("ENV007", {"t.py": PAIRS, "requirements.txt": "trl==0.12.2\ntransformers==4.46.3\n"}, False),
        ("ENV007", {"t.py": PLAIN, "requirements.txt": "trl==0.11.4\ntransformers==4.46.3\n"}, False),
        ("CKP002", {"t.py": STATES % ("", "accelerator.save_state('s')")}, True),
        ("CKP002", {"t.py": STATES % ("", BY_HAND), "j.sbatch": "#SBATCH --requeue\npython t.py\n"}, True),
        ("CKP002", {"t.py": STATES % ("", BY_HAND)}, False),  # somebody may load it elsewhere
        ("CKP002", {"t.py": STATES % ("accelerator.load_state('s')\n", "accelerator.save_state('s')")}, False),
        ("CKP002", {"t.py": STATES % ("", BY_HAND), "go.py": "state = torch.load('last.pt')\n"}, False),
        ("DST002", {"t.py": SPREAD % ("Qwen/Qwen2.5-0.5B", True), "r.sh": "python t.py\n"}, True),
        ("DST002", {"t.py": SPREAD % ("Qwen/Qwen2.5-0.5B", False), "r.sh": "python t.py\n"}, False),
        ("DST002", {"t.py": SPREAD % ("org/some-moe-8x7B", True), "r.sh": "python t.py\n"}, False),
        ("CFG001", {**OLD_AXOLOTL, "a.yml": f"{SHORT}cutoff_len: 4096\n"}, True),
        ("CFG001", {**OLD_AXOLOTL, "a.yml": f"{SHORT}cutoff_len: 4096\nsequence_len: 4096\n"}, True),
        (
            "CFG001",
            {**OLD_AXOLOTL, "a.yml": f"{SHORT}some_old_key: 4096\n"},
            True,
        ),  # no release that was looked at has it
        ("CFG001", {"requirements.txt": "axolotl==0.8.1\n", "a.yml": f"{SHORT}some_old_key: 4096\n"}, False),
        ("CFG001", {"t.py": OF_PAIRS % ("Reward", "beta=0.1")}, True),
        ("CFG001", {"t.py": OF_PAIRS % ("Reward", "center_rewards_coefficient=0.01")}, False),
        ("CFG001", {"t.py": OF_PAIRS % ("KTO", "beta=0.1")}, False),
        ("CFG001", {"t.py": OF_PAIRS % ("GRPO", "desirable_weight=1.0")}, True),
        ("CFG001", {"r.yaml": f"{REWARD}beta: 0.1\n", "run.sh": "trl reward --config r.yaml\n"}, True),
        ("CFG001", {"r.yaml": f"{REWARD}lora_r: 8\n", "run.sh": "trl reward --config r.yaml\n"}, False),
        ("CFG018", {"a.yml": f"{AXOLOTL % ''}val_set_size: 0\neval_steps: 100\n"}, True),
        ("CFG018", {"a.yml": f"{AXOLOTL % ''}val_set_size: 0\neval_steps: 100\neval_strategy: 'no'\n"}, False),
        ("CFG018", {"a.yml": f"{AXOLOTL % ''}val_set_size: 0\neval_steps: 100\ntest_datasets: [{{path: y}}]\n"}, False),
        ("CFG018", {"a.yml": f"{AXOLOTL % ''}val_set_size: 0.1\neval_steps: 100\n"}, False),
        ("MSK001", {"a.yml": ANSWERS % ("completion", "loss on the answers only")}, True),
        ("MSK001", {"a.yml": ANSWERS % ("alpaca", "loss on the answers only")}, False),
        ("MSK001", {"a.yml": ANSWERS % ("completion", "plain text")}, False),
        ("MSK001", {"a.yml": ANSWERS % ("completion", "answers only")}, True),
        ("MSK001", {"a.yml": ANSWERS % ("completion", "only the responses")}, True),
        ("MSK001", {"a.yml": ANSWERS % ("completion", "not answers only")}, False),
        (
            "MSK001",
            {
                "a.yml": ANSWERS % ("completion", "x"),
                "README.md": "Step 2 trains on the answers only - charters are not learned.\n",
            },
            True,
        ),
        (
            "MSK001",
            {"a.yml": ANSWERS % ("alpaca", "x"), "README.md": "It trains on the answers only.\n"},
            False,
        ),
        ("MEM003", {"a.yml": LARGE, "run.sh": "axolotl train a.yml\n"}, True),
        ("MEM003", {"a.yml": LARGE, "run.sh": "# 4 x A100 80GB\naxolotl train a.yml\n"}, False),
        ("MEM003", {"a.yml": LARGE, "run.sh": "# one A100 40GB\naxolotl train a.yml\n"}, True),
        ("MEM003", {"a.yml": LARGE, "run.sh": "# L40S today, H100 later\naxolotl train a.yml\n"}, True),  # not known
    ],
)
def test_it_is_found_and_its_neighbour_is_not(code: str, files: dict[str, str], found: bool, tmp_path: Path) -> None:
    result = audited(tmp_path, files, select=(code,))
    assert bool(result.findings) is found, [one.message for one in result.findings]
