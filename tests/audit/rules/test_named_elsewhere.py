"""Promise: what only another file says (GPU, pins, launcher) decides a finding; what is right is left alone."""

from pathlib import Path

import pytest

from tests.audit.made_up import audited

FLASH = "model_name_or_path: Qwen/Qwen2.5-0.5B\ndataset_name: d.jsonl\nattn_implementation: flash_attention_2\n"
HALF = "model_name_or_path: Qwen/Qwen2.5-0.5B\ndataset_name: d.jsonl\nfp16: true\nbf16: false\n"
JOB = "#!/bin/bash\n#SBATCH --gres=gpu:%s:4\ntrl sft --config sft.yaml\n"
LLAMA = (
    "model_name_or_path: Qwen/Qwen2.5-0.5B\nstage: sft\ndo_train: true\nfinetuning_type: lora\ndataset: a\ntemplate: qwen\n"
    "output_dir: o\n# effective batch %d\nper_device_train_batch_size: 2\ngradient_accumulation_steps: "
    "8\nlearning_rate: 1.0e-4\n"
)
SHOWS = "export CUDA_VISIBLE_DEVICES=0,1,2,3\nllamafactory-cli train a.yaml\n"
SFT = "model_name_or_path: Qwen/Qwen2.5-0.5B\ndataset_name: d.jsonl\nlearning_rate: 1.0e-4\n"
ADAPTERS = (
    "from peft import LoraConfig, get_peft_model\nfrom transformers import AutoModelForCausalLM\n"
    "model = AutoModelForCausalLM.from_pretrained('a/b')\n%smodel = get_peft_model(model, LoraConfig(r=8))\n%s"
)
ENABLES = "model.gradient_checkpointing_enable(%s)\n"
FROZEN = (
    "from torch import nn\nfrom torch.utils.checkpoint import checkpoint\n\n\nclass Net(nn.Module):\n    "
    "def __init__(self):\n"
    "        super().__init__()\n        self.emb = nn.Embedding(8, 8)\n        %s\n\n    def forward(self, x):\n"
    "        return checkpoint(self.block, self.emb(x), use_reentrant=%s)\n"
)
AXOLOTL = (
    "base_model: Qwen/Qwen2.5-0.5B\ndatasets: [{path: x, type: alpaca}]\nmicro_batch_size: 2\nsequence_len: 2048\n"
    "sample_packing: true\n%s"
)
LOOP = (
    "import argparse\nfrom accelerate import Accelerator\nfrom torch.optim import AdamW\nfrom "
    "torch.utils.data import DataLoader\n"
    "p = argparse.ArgumentParser()\np.add_argument('--rows', type=int, default=2)\n"
    "p.add_argument('--acc', type=int, default=1)\n"
    "p.add_argument('--lr', type=float, default=1e-5)\na = p.parse_args()\n"
    "accelerator = Accelerator(gradient_accumulation_steps=a.acc)\nloader = DataLoader(rows, batch_size=a.rows)\n"
    "opt = AdamW(model.parameters(), lr=a.lr)\nmodel, opt, loader = accelerator.prepare(model, opt, loader)\n"
    "for batch in loader:\n    with accelerator.accumulate(model):\n        loss = model(**batch).loss\n"
    "        accelerator.backward(loss)\n        opt.step()\n        opt.zero_grad()\n"
)
DEEP = (
    "distributed_type: DEEPSPEED\ncompute_environment: LOCAL_MACHINE\nnum_processes: 8\nnum_machines: 1\n"
    "deepspeed_config: {deepspeed_config_file: ds.json}\n"
)
ZERO = (
    '{"zero_optimization": {"stage": 2}, "train_batch_size": %s, "train_micro_batch_size_per_gpu": "auto",'
    ' "gradient_accumulation_steps": "auto"}'
)
STARTS = "accelerate launch --config_file acc.yaml -m job.train --rows 4 --acc 4\n"
BY_HAND = (
    "import cfg as C\ndef encode(row, tok):\n    ids = tok(row['text'])['input_ids'][: C.MAX_LEN]\n"
    "    room = %s - len(ids)\n    return {'input_ids': ids + [0] * room, 'attention_mask': [1] * len(ids) + [0] * room}\n"
)
TRAINS = (
    "from rows import encode\nfrom transformers import Trainer, TrainingArguments\n"
    "args = TrainingArguments(output_dir='o', group_by_length=%s)\n"
    "Trainer(model=model, args=args, train_dataset=data.map(encode)).train()\n"
)
SPAWNS = (
    "import torch.multiprocessing as mp\nfrom work import worker\n\nif __name__ == '__main__':\n"
    "    mp.spawn(worker, nprocs=4)\n"
)
WORK = "from ranks import WORLD\n\n\ndef worker(rank):\n    print(WORLD)\n"
COUNTS = "import os\nWORLD = int(os.environ.get('WORLD_SIZE', 1))\n"
COUNTS_LATER = "import os\n\n\ndef world():\n    return int(os.environ.get('WORLD_SIZE', 1))\n\n\nWORLD = world\n"
STEPS = (
    "import torch\nfrom torch.utils.data import DataLoader\nfrom rows import Rows\nmodel.cuda()\n"
    "loader = DataLoader(%s)\nopt = torch.optim.AdamW(model.parameters(), lr=1e-4%s)\nfor batch in loader:\n"
    "    loss = model(batch.cuda()).loss\n    loss.backward()\n    opt.step()\n    opt.zero_grad()\n"
)
IN_MEMORY = "class Rows:\n    def __getitem__(self, at):\n        return %s\n"
TWO = (
    "import torch\nfrom transformers import AutoModelForCausalLM\n"
    "student = AutoModelForCausalLM.from_pretrained('gpt2').to('cuda')\n"
    "teacher = AutoModelForCausalLM.from_pretrained('gpt2-xl').eval()%s\nopt = "
    "torch.optim.SGD(student.parameters(), lr=1e-3)\n"
    "for batch in loader:\n    with torch.no_grad():\n        t = teacher(batch.to(%s)).logits.to('cuda')\n"
    "    loss = distance(student(batch.to('cuda')).logits, t)\n    loss.backward()\n    opt.step()\n    opt.zero_grad()\n"
)
PRECISE = LOOP.replace(
    "a = p.parse_args()", "p.add_argument('--mixed_precision', default=%s)\na = p.parse_args()"
).replace("Accelerator(", "Accelerator(mixed_precision=a.mixed_precision, ")
BF16 = "distributed_type: MULTI_GPU\ncompute_environment: LOCAL_MACHINE\nnum_processes: 2\nmixed_precision: %s\n"
GOES = "accelerate launch --config_file acc.yaml t.py --lr 1e-5%s\n"
SPEED = (
    "import time\nfrom transformers import TrainerCallback\n\n\nclass Speed(TrainerCallback):\n"
    "    def on_log(self, args, state, control, **kw):\n        pairs = state.global_step * args.train_batch_size\n"
    "        tokens = pairs * 2 * %s\n        print(f'{tokens / (time.time() - self.t):.0f} tokens/s')\n"
)
SCHEDULED = (
    "from transformers import TrainingArguments\nargs = TrainingArguments(\n    output_dir='o',\n    # %s\n"
    "    lr_scheduler_type='%s',\n)\n"
)
SMALL = (
    "from transformers import AutoModelForCausalLM, Trainer, TrainingArguments\n"
    "model = AutoModelForCausalLM.from_pretrained('Qwen/Qwen2.5-0.5B')\nargs = TrainingArguments(output_dir='o',"
    " per_device_train_batch_size=1, gradient_accumulation_steps=32, gradient_checkpointing=True, bf16=True)\n"
    "Trainer(model=model, args=args, train_dataset=rows).train()\n"
)
LONG = "One H100 80GB. Rows of %s tokens.\n"
SHARDED = '{"zero_optimization": {"stage": 2}, "train_batch_size": "auto"}'
PARSED = (
    "import argparse\np = argparse.ArgumentParser()\np.add_argument('--lr', type=float)\n"
    "p.add_argument('--max_length', type=int, default=512)\na = p.parse_args()\nprint(a.lr, a.max_length)\n"
)
RENDERED = (
    "def render(turns, tok):\n    return ''.join(m['content'] + tok.eos_token for m in turns)\n\n\n"
    "def encode(turns, tok):\n    ids = tok(render(turns, tok))['input_ids']\n    labels = [-100] * len(ids)\n"
    "    for i, m in enumerate(turns):\n        head = render(turns[:i], tok)\n        lo = len(tok(head)['input_ids'])\n"
    "        hi = len(tok(head + m['content']%s)['input_ids'])\n        labels[lo:hi] = ids[lo:hi]\n    return ids, labels\n"
)
HYDRA = (
    "import hydra\nimport torch.multiprocessing as mp\n\n\nclass Work:\n    def __init__(self, cfg):\n"
    "        self.cfg = cfg\n        print(self.cfg.train.lr%s)\n\n\ndef work(rank, cfg):\n    Work(cfg)\n\n\n"
    "@hydra.main(config_path='conf', config_name='config', version_base=None)\ndef main(cfg):\n"
    "    mp.spawn(work, args=(cfg,), nprocs=2)\n\n\nmain()\n"
)
TRAIN = "train:\n  lr: 1.0e-4\n  precision: bf16\n"


@pytest.mark.parametrize(
    ("code", "files", "found"),
    [
        ("ATT005", {"sft.yaml": FLASH, "README.md": "# Job\n\nOne box with 4 x V100-SXM2-32GB.\n"}, True),
        ("ATT005", {"sft.yaml": FLASH, "run.sbatch": JOB % "v100"}, True),
        ("ATT005", {"sft.yaml": f"# sm_75, 16 GB\n{FLASH}"}, True),
        ("ATT005", {"sft.yaml": FLASH, "README.md": "Two A100 80GB. It was a V100 before.\n"}, False),
        ("ATT005", {"sft.yaml": FLASH, "README.md": "It does not run on a V100.\n"}, False),
        ("ATT005", {"sft.yaml": FLASH, "run.sbatch": JOB % "h100", "README.md": "Ran on 4 x V100.\n"}, False),
        ("PRC008", {"sft.yaml": HALF, "README.md": "Two T4 of 16 GB: no bf16 there.\n"}, False),
        ("PRC008", {"sft.yaml": HALF, "run.sbatch": JOB % "v100"}, False),
        ("PRC008", {"sft.yaml": HALF, "README.md": "Two H100 of 80 GB.\n"}, True),
        ("CFG007", {"sft.yaml": SFT, "run.sh": "trl sft --config sft.yaml --learning_rate 5e-5\n"}, True),
        (
            "CFG007",
            {
                "sft.yaml": SFT,
                "run.sh": "# lower than the YAML's\ntrl sft --config sft.yaml \\\n  --learning_rate 5e-5\n",
            },
            False,
        ),
        ("CFG007", {"sft.yaml": SFT, "run.sh": "# trains\ntrl sft --config sft.yaml --learning_rate 5e-5\n"}, True),
        ("CFG007", {"a.yaml": LLAMA % 64, "run.sh": "llamafactory-cli train a.yaml --learning_rate 5e-5\n"}, False),
        ("CFG011", {"a.yaml": LLAMA % 128, "run.sh": SHOWS}, True),
        ("CFG011", {"a.yaml": LLAMA % 64, "run.sh": SHOWS}, False),
        ("CFG011", {"a.yaml": LLAMA % 128, "run.sh": "llamafactory-cli train a.yaml\n"}, False),  # on eight it is so
        ("MEM002", {"t.py": ADAPTERS % ("", ENABLES % ""), "requirements.txt": "transformers==4.51.3\n"}, True),
        ("MEM002", {"t.py": ADAPTERS % ("", ENABLES % ""), "requirements.txt": "transformers==5.23.0\n"}, False),
        ("MEM002", {"t.py": ADAPTERS % ("", ENABLES % ""), "requirements.txt": "transformers\n"}, False),
        ("MEM002", {"t.py": ADAPTERS % (ENABLES % "", ""), "requirements.txt": "transformers==4.51.3\n"}, False),
        (
            "MEM002",
            {
                "t.py": ADAPTERS % ("", ENABLES % "gradient_checkpointing_kwargs={'use_reentrant': False}"),
                "requirements.txt": "transformers==4.51.3\n",
            },
            False,
        ),
        (
            "MEM002",
            {
                "t.py": ADAPTERS % ("model.enable_input_require_grads()\n", ENABLES % ""),
                "requirements.txt": "transformers==4.51.3\n",
            },
            False,
        ),
        ("MEM002", {"net.py": FROZEN % ("self.emb.requires_grad_(False)", True)}, True),
        (
            "MEM002",
            {"net.py": FROZEN % ("for p in self.emb.parameters():\n            p.requires_grad = False", True)},
            True,
        ),
        ("MEM002", {"net.py": FROZEN % ("self.emb.requires_grad_(False)", False)}, False),
        ("MEM002", {"net.py": FROZEN % ("self.head.requires_grad_(False)", True)}, False),
        ("ENV007", {"t.py": "import peft\n", "requirements.txt": "transformers==5.1.0\npeft==0.17.1\n"}, True),
        ("ENV007", {"t.py": "import peft\n", "requirements.txt": "transformers==5.1.0\npeft==0.18.0\n"}, False),
        ("ENV007", {"t.py": "import peft\n", "requirements.txt": "transformers==4.57.1\npeft==0.17.1\n"}, False),
        ("PAD001", {"a.yml": AXOLOTL % "", "requirements.txt": "axolotl==0.8.0\n"}, True),
        ("PAD001", {"a.yml": AXOLOTL % "flash_attention: true\n", "requirements.txt": "axolotl==0.8.0\n"}, False),
        ("PAD001", {"a.yml": AXOLOTL % "xformers_attention: true\n", "requirements.txt": "axolotl==0.8.0\n"}, False),
        ("PAD001", {"a.yml": AXOLOTL % ""}, False),  # which release runs is not known
        ("CFG012", {"job/train.py": LOOP, "acc.yaml": DEEP, "ds.json": ZERO % 64, "run.sh": STARTS}, True),
        ("CFG012", {"job/train.py": LOOP, "acc.yaml": DEEP, "ds.json": ZERO % 128, "run.sh": STARTS}, False),
        ("CFG012", {"job/train.py": LOOP, "acc.yaml": DEEP, "ds.json": ZERO % '"auto"', "run.sh": STARTS}, False),
        ("PAD005", {"t.py": TRAINS % False, "rows.py": BY_HAND % "C.MAX_LEN", "cfg.py": "MAX_LEN = 4096\n"}, True),
        ("PAD005", {"t.py": TRAINS % False, "rows.py": BY_HAND % "max(map(len, row))"}, False),
        ("PAD004", {"t.py": TRAINS % True, "rows.py": BY_HAND % "C.MAX_LEN", "cfg.py": "MAX_LEN = 4096\n"}, True),
        ("PAD004", {"t.py": TRAINS % False, "rows.py": BY_HAND % "C.MAX_LEN", "cfg.py": "MAX_LEN = 4096\n"}, False),
        ("DST051", {"t.py": SPAWNS, "work.py": WORK, "ranks.py": COUNTS}, True),
        ("DST051", {"t.py": SPAWNS, "work.py": WORK, "ranks.py": COUNTS_LATER}, False),
        ("OPT001", {"t.py": STEPS % ("rows", ", foreach=False")}, True),
        ("OPT001", {"t.py": STEPS % ("rows", ", foreach=False, fused=True")}, False),
        ("OPT001", {"t.py": STEPS % ("rows", ", foreach=True")}, False),
        ("HST051", {"t.py": STEPS % ("Rows(), num_workers=16", ""), "rows.py": IN_MEMORY % "self.ids[at]"}, True),
        ("HST051", {"t.py": STEPS % ("Rows(), num_workers=16", ""), "rows.py": IN_MEMORY % "read(at)"}, False),
        ("HST051", {"t.py": STEPS % ("Rows(), num_workers=2", ""), "rows.py": IN_MEMORY % "self.ids[at]"}, False),
        ("HST004", {"t.py": TWO % ("", "teacher.device")}, True),
        ("HST004", {"t.py": TWO % (".cuda()", "teacher.device")}, False),
        ("HST004", {"t.py": TWO % ("\nteacher.to('cuda')", "teacher.device")}, False),
        ("HST004", {"t.py": TWO % ("", "'cuda'")}, False),  # it stops at once
        ("PRC002", {"t.py": PRECISE % "'no'", "acc.yaml": BF16 % "bf16", "r.sh": GOES % ""}, True),
        ("PRC002", {"t.py": PRECISE % "'no'", "acc.yaml": BF16 % "'no'", "r.sh": GOES % ""}, False),
        ("PRC002", {"t.py": PRECISE % "None", "acc.yaml": BF16 % "bf16", "r.sh": GOES % ""}, False),
        (
            "PRC002",
            {"t.py": PRECISE % "'no'", "acc.yaml": BF16 % "bf16", "r.sh": GOES % " --mixed_precision bf16"},
            False,
        ),
        ("MSR001", {"speed.py": SPEED % "args.max_length"}, True),
        ("MSR001", {"speed.py": SPEED % "self.mean_length"}, False),
        ("CFG011", {"t.py": SCHEDULED % ("cosine down to a tenth of the peak", "cosine")}, True),
        ("CFG011", {"t.py": SCHEDULED % ("decays to 10% of the peak", "linear")}, True),
        ("CFG011", {"t.py": SCHEDULED % ("cosine down to a tenth of the peak", "cosine_with_min_lr")}, False),
        ("CFG011", {"t.py": SCHEDULED % ("cosine, down to zero", "cosine")}, False),
        ("CFG011", {"t.py": SCHEDULED % ("not down to a tenth of the peak", "cosine")}, False),
        ("MEM001", {"t.py": SMALL, "README.md": LONG % "150 to 512"}, True),
        ("MEM001", {"t.py": SMALL, "README.md": LONG % "150 to 65 536"}, False),
        ("MEM001", {"t.py": SMALL, "README.md": LONG % "some"}, False),
        ("OPT004", {"t.py": SMALL, "README.md": LONG % "150 to 512"}, True),
        ("OPT004", {"t.py": SMALL, "README.md": LONG % "150 to 65 536"}, False),
        ("OPT004", {"t.py": SMALL, "README.md": f"{LONG % '9 to 512'}Chats of 5 to 90 tokens.\n"}, False),  # which?
        (
            "CFG010",
            {
                "a.yml": AXOLOTL % "",
                "r.sh": "axolotl train a.yml\n",
                "z.json": SHARDED,
                "README.md": "We shard with z.json.\n",
            },
            True,
        ),
        (
            "CFG010",
            {
                "a.yml": AXOLOTL % "",
                "r.sh": "axolotl train a.yml\n",
                "z.json": SHARDED,
                "README.md": "Without z.json it fits.\n",
            },
            False,
        ),
        (
            "CFG010",
            {
                "a.yml": AXOLOTL % "deepspeed: z.json\n",
                "r.sh": "axolotl train a.yml\n",
                "z.json": SHARDED,
                "README.md": "We shard with z.json.\n",
            },
            False,
        ),
        ("CFG009", {"t.py": PARSED, "a.env": "LR=1\nMAX_LENGTH=9\n", "r.sh": ". a.env\npython t.py --lr $LR\n"}, True),
        ("CFG009", {"t.py": PARSED, "a.env": "LR=1\nOTHER=9\n", "r.sh": ". a.env\npython t.py --lr $LR\n"}, False),
        (
            "CFG009",
            {
                "t.py": PARSED,
                "a.env": "LR=1\nMAX_LENGTH=9\n",
                "r.sh": ". a.env\npython t.py --lr $LR --max_length $MAX_LENGTH\n",
            },
            False,
        ),
        ("CFG009", {"t.py": PARSED, "a.env": "LR=1\nMAX_LENGTH=9\n", "r.sh": ". a.env\npython t.py --lr 2\n"}, False),
        ("MSK056", {"rows.py": RENDERED % ""}, True),
        ("MSK056", {"rows.py": RENDERED % " + tok.eos_token"}, False),
        ("CFG017", {"t.py": HYDRA % "", "conf/config.yaml": TRAIN}, True),
        ("CFG017", {"t.py": HYDRA % ", self.cfg.train.precision", "conf/config.yaml": TRAIN}, False),
        ("CFG017", {"t.py": HYDRA % ", dict(self.cfg.train)", "conf/config.yaml": TRAIN}, False),
    ],
)
def test_what_another_file_says_decides(code: str, files: dict[str, str], found: bool, tmp_path: Path) -> None:
    result = audited(tmp_path, files, select=(code,))
    assert bool(result.findings) is found, [one.message for one in result.findings]
