"""The same fault in shapes that people write it in, and what looks like it and is none."""

from pathlib import Path

import pytest

from tests.audit.made_up import audited

LOOP = """
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
torch.manual_seed(0)
for step, batch in enumerate(loader):
    loss = model(**batch).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""
HF = "import torch\nfrom transformers import AutoModelForCausalLM, AutoTokenizer\n"
TORCHRUN = "torchrun --nproc_per_node 8 train.py\n"
TRAIN = (
    "from transformers import Trainer, TrainingArguments\n\n"
    "Trainer(model=m, args=TrainingArguments('out'), train_dataset=d).train()\n"
)


def parent(read: str, start: str) -> str:
    return f"import os\nimport subprocess\n\nworld = {read}\naccum = 64 // world\n{start}\n"


def beside(how: str, loop: str = "aim = teacher(**batch).logits") -> str:
    return f"""{HF}
student = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-0.5B").cuda()
{how}
optimizer = torch.optim.AdamW(student.parameters(), lr=1e-5)
torch.manual_seed(0)
for batch in loader:
    with torch.no_grad():
        {loop}
    loss = kl(student(**batch).logits, aim)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""


TEACHER = 'teacher = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-3B", torch_dtype=torch.bfloat16)'


def scores(load: str, ask: str, more: str = "") -> str:
    return f"""{HF}{more}
tokenizer = AutoTokenizer.from_pretrained("out")
model = AutoModelForCausalLM.from_pretrained("out", {load})
model.eval()
with torch.no_grad():
    for line in open("rows.txt"):
        enc = tokenizer(line, return_tensors="pt"){ask}
"""


def dpo(models: str, call: str) -> str:
    return f"""from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM
from trl import DPOConfig, DPOTrainer

def get_model(cfg):
    return AutoModelForCausalLM.from_pretrained(cfg.name, torch_dtype="bfloat16")

{models}
DPOTrainer({call}, args=DPOConfig(output_dir="out", precompute_ref_log_probs=True), train_dataset=pairs).train()
"""


def accelerated(dtype: str, more: str = "", accelerator: str = "") -> dict[str, str]:
    return {
        "train.py": f"""{HF}from accelerate import Accelerator

accelerator = Accelerator({accelerator})
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-0.5B"{dtype})
{more}optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
for batch in loader:
    accelerator.backward(model(**batch).loss)
    optimizer.step()
    optimizer.zero_grad()
""",
    }


ACCELERATE = "compute_environment: LOCAL_MACHINE\ndistributed_type: MULTI_GPU\nnum_processes: 4\nmixed_precision: {}\n"
ARGUMENTS = """from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

model = AutoModelForCausalLM.from_pretrained(name, torch_dtype="float32")
args = TrainingArguments(output_dir="out", {})
Trainer(model=model, args=args, train_dataset=rows).train()
"""
MFU = "peak = {}\n\n\ndef mfu(flops, seconds):\n    return flops / seconds / peak\n"
FORWARD = """import torch
from torch import nn


class Router(nn.Module):
    def forward(self, x, mask=None):
{}        return x
"""

BAD = [
    (
        "DST051",
        {
            "go.py": parent(
                'int(os.environ.get("WORLD_SIZE", "1"))', 'os.system(f"torchrun --nproc_per_node 8 train.py {accum}")'
            )
        },
    ),
    (
        "DST051",
        {
            "go.py": parent(
                "int(os.getenv('WORLD_SIZE', 1))",
                'subprocess.check_call(["torchrun", "--nproc_per_node=4", "train.py", str(accum)])',
            )
        },
    ),
    (
        "DST051",
        {
            "go.py": parent(
                'int(os.environ.get("WORLD_SIZE", default=1))',
                'cmd = ["python", "-m", "torch.distributed.run", "train.py"]\nsubprocess.Popen(cmd)',
            )
        },
    ),
    (
        "DST051",
        {
            "go.py": parent(
                'int(os.environ.get("WORLD_SIZE", 1))', 'subprocess.run(["deepspeed", "train.py"], check=True)'
            )
        },
    ),
    (
        "DST051",
        {
            "prep.py": parent('int(os.environ.get("WORLD_SIZE", 1))', "print(accum)"),
            "run.sh": "python3 prep.py --out a.json\n" + TORCHRUN,
            "train.py": TRAIN,
        },
    ),
    (
        "DST051",
        {
            "tools/prep.py": parent('int(os.environ.get("WORLD_SIZE", 1))', "print(accum)"),
            "job.sbatch": (
                "#!/bin/bash\n#SBATCH --gpus=8\nACC=$(python -m tools.prep)\n"
                "srun torchrun --nproc_per_node 8 train.py --acc $ACC\n"
            ),
            "train.py": TRAIN,
        },
    ),
    ("HST004", {"kd.py": beside(TEACHER)}),
    (
        "HST004",
        {
            "kd.py": beside(
                TEACHER + "\nteacher.requires_grad_(False)", "aim = teacher(input_ids=batch['input_ids']).logits"
            )
        },
    ),
    ("HST004", {"kd.py": beside(TEACHER + ".eval()")}),
    ("HST004", {"s.py": scores("torch_dtype=torch.bfloat16", "\n        print(model(**enc).logits)")}),
    ("HST004", {"s.py": scores("dtype=torch.float16", "\n        print(model.generate(**enc, max_new_tokens=9))")}),
    ("HST004", {"s.py": scores('torch_dtype="bfloat16"', ".to(model.device)\n        out = model(**enc)")}),
    (
        "DPO001",
        {"d.py": dpo("policy = get_model(cfg)\nref = get_model(cfg)", "policy, ref, peft_config=LoraConfig(r=8)")},
    ),
    (
        "DPO001",
        {
            "d.py": dpo(
                "m = get_model(cfg)\nm = get_peft_model(m, LoraConfig())\nr = get_model(cfg)\nr.eval()",
                "model=m, ref_model=r",
            )
        },
    ),
    ("PRC006", {**accelerated(", torch_dtype=torch.float32"), "acc.yaml": ACCELERATE.format("'no'")}),
    (
        "PRC006",
        {
            **accelerated(", dtype='float32'"),
            "conf/accelerate.yaml": ACCELERATE.format("'no'"),
            "README.md": "accelerate launch train.py\n",
        },
    ),
    ("PRC006", {"t.py": ARGUMENTS.format("seed=1"), "README.md": "Precision: bf16.\n"}),
    ("PRC006", {"t.py": ARGUMENTS.format("seed=1"), "cfg.yaml": "optim:\n  lr: 1.0e-5\n  bf16: true\n"}),
    ("PRC006", {"t.py": ARGUMENTS.format("seed=1"), "README.md": "Trained on 8 GPUs with mixed precision.\n"}),
    ("MSR006", {"m.py": MFU.format("1979e12")}),
    ("MSR006", {"m.py": MFU.format("1_979 * 1e12  # H100")}),
    (
        "MSR006",
        {
            "m.py": "PEAKS = {'A100': 312e12,\n    'H100': 1.979e15}\n\n\ndef mfu(f, s):\n    return f / s / PEAKS['H100']\n"
        },
    ),
    ("MSR006", {"m.py": "def util(f, s, peak_flops=624e12):\n    return f / s / peak_flops\n"}),
    ("MSR006", {"m.py": "H100_TFLOPS = 1978.9\n\n\ndef f(t):\n    print('MFU', t / H100_TFLOPS)\n"}),
    (
        "HST002",
        {
            "m.py": FORWARD.format(
                "        if self.training:\n            if torch.isnan(x).any():\n                raise ValueError\n"
            )
        },
    ),
    (
        "HST002",
        {
            "m.py": FORWARD.format(
                "        if self.training and self.check:\n            if not mask.all():\n                x = x * 2\n"
            )
        },
    ),
    (
        "HST002",
        {
            "m.py": FORWARD.format(
                "        with torch.no_grad():\n            if x.max() > 1e4:\n                x = x / 2\n"
            )
        },
    ),
    ("CKP051", {"t.py": HF + 'm = AutoModelForCausalLM.from_pretrained("a/b")\ntorch.save(m.state_dict(), "w.pt")\n'}),
    (
        "CKP051",
        {
            "t.py": HF
            + (
                'model = AutoModelForCausalLM.from_pretrained("a/b")\ncore = strip(model)\n'
                'torch.save(core.state_dict(), out / "pytorch_model.bin")\n'
            )
        },
    ),
    (
        "CKP051",
        {
            "t.py": HF
            + (
                'model = AutoModelForCausalLM.from_pretrained("a/b")\nu = accelerator.unwrap_model(model)\n'
                'sd = u.state_dict()\ntorch.save(u.state_dict(), f"{out}/final.pth")\n'
            )
        },
    ),
    (
        "HST001",
        {
            "t.py": HF
            + "model.cuda()\n"
            + LOOP.replace("    loss = model", "    if step >= 100:\n        break\n    loss = model")
            + "    total += loss.item()\n"
        },
    ),
    (
        "HST001",
        {
            "t.py": HF
            + "model.cuda()\n"
            + LOOP
            + "    if step == last:\n        raise SystemExit\n    wandb.log({'loss': loss.item()})\n"
        },
    ),
    (
        "MSK052",
        {
            "t.py": HF
            + (
                "from mine import IGNORE_INDEX\ntok = AutoTokenizer.from_pretrained('a')\n"
                "b = tok(texts, padding=True)\nb['labels'] = b['input_ids'].clone()\n"
            )
        },
    ),
    (
        "MSR003",
        {
            "t.py": HF
            + (
                "import argparse\nfrom torch.utils.data import DataLoader\np = argparse.ArgumentParser()\n"
                "p.add_argument('--seed', type=int, default=1)\nloader = DataLoader(rows, shuffle=True)\n"
            )
            + LOOP.replace("torch.manual_seed(0)\n", "")
        },
    ),
]

GOOD = [
    (
        "DST051",
        {"train.py": HF + "import os\nworld = int(os.environ.get('WORLD_SIZE', 1))\n" + LOOP, "run.sh": TORCHRUN},
    ),
    ("DST051", {"go.py": parent('int(os.environ.get("WORLD_SIZE", 1))', 'print("no launcher")')}),
    ("DST051", {"go.py": parent('int(os.environ.get("NUM_GPUS", 1))', 'subprocess.run(["torchrun", "train.py"])')}),
    (
        "DST051",
        {
            "go.py": parent(
                'int(os.environ.get("WORLD_SIZE", 1))',
                (
                    'env = dict(os.environ)\nenv["WORLD_SIZE"] = "8"\n'
                    'os.environ["WORLD_SIZE"] = "8"\nsubprocess.run(["torchrun", "t.py"], env=env)'
                ),
            )
        },
    ),
    (
        "DST051",
        {
            "prep.py": parent('int(os.environ.get("WORLD_SIZE", 1))', "print(accum)"),
            "run.sh": "export WORLD_SIZE=8\npython prep.py\n" + TORCHRUN,
            "train.py": TRAIN,
        },
    ),
    (
        "DST051",
        {
            "prep.py": parent('int(os.environ.get("WORLD_SIZE", 1))', "print(accum)"),
            "run.sh": TORCHRUN + "python prep.py\n",
            "train.py": TRAIN,
        },
    ),
    ("HST004", {"kd.py": beside(TEACHER + "\nteacher.to('cuda')")}),
    ("HST004", {"kd.py": beside(TEACHER + "\nplace(teacher)")}),
    ("HST004", {"kd.py": beside(TEACHER.replace("torch_dtype", "device_map='cuda', torch_dtype"))}),
    (
        "HST004",
        {"s.py": scores("torch_dtype=torch.bfloat16, device_map='auto'", "\n        print(model(**enc).logits)")},
    ),
    (
        "HST004",
        {"s.py": scores("torch_dtype=torch.bfloat16", "\n        print(model(**enc).logits)", "device = 'cpu'\n")},
    ),
    ("HST004", {"s.py": scores("torch_dtype=torch.float32", "\n        print(model(**enc).logits)")}),
    ("DPO001", {"d.py": dpo("policy = get_model(cfg)\nref = get_model(cfg)", "policy, ref")}),
    (
        "DPO001",
        {"d.py": dpo("policy = get_model(cfg)\nref = get_model(old)", "policy, ref, peft_config=LoraConfig(r=8)")},
    ),
    ("DPO001", {"d.py": dpo("policy = get_model(cfg)", "policy, None, peft_config=LoraConfig(r=8)")}),
    ("PRC006", {**accelerated(", torch_dtype=torch.float32"), "acc.yaml": ACCELERATE.format("bf16")}),
    (
        "PRC006",
        {
            **accelerated(", torch_dtype=torch.float32", accelerator="mixed_precision='bf16'"),
            "acc.yaml": ACCELERATE.format("'no'"),
        },
    ),
    (
        "PRC006",
        {
            **accelerated(", torch_dtype=torch.float32"),
            "acc.yaml": ACCELERATE.format("'no'"),
            "README.md": "accelerate launch --mixed_precision bf16 train.py\n",
        },
    ),
    ("PRC006", {"t.py": ARGUMENTS.format("bf16=True"), "README.md": "Precision: bf16.\n"}),
    ("PRC006", {"t.py": ARGUMENTS.format("seed=1"), "README.md": "We do not use bf16, it was worse.\n"}),
    ("PRC006", {"t.py": ARGUMENTS.format("fp16=True"), "cfg.yaml": "bf16: true\n"}),
    ("MSR006", {"m.py": MFU.format("989e12")}),
    ("MSR006", {"m.py": MFU.format("1979e12 / 2  # dense")}),
    ("MSR006", {"m.py": MFU.format("1979e12  # H100, fp8")}),
    ("MSR006", {"m.py": "YEAR = 1979\nprint(YEAR, 'peak flops')\n"}),
    (
        "HST002",
        {
            "m.py": FORWARD.format(
                "        if self.debug:\n            if torch.isnan(x).any():\n                raise ValueError\n"
            )
        },
    ),
    (
        "HST002",
        {
            "m.py": FORWARD.format(
                "        if not self.training:\n            if mask.any():\n                x = x * 2\n"
            )
        },
    ),
    ("HST002", {"m.py": FORWARD.format("        if mask is not None:\n            x = x * mask\n")}),
    (
        "CKP051",
        {
            "t.py": HF
            + (
                'm = AutoModelForCausalLM.from_pretrained("a/b")\n'
                'torch.save(m.state_dict(), "w.pt")\nmodel = m\nmodel.save_pretrained("out")\n'
            )
        },
    ),
    (
        "CKP051",
        {
            "t.py": HF
            + 'model = AutoModelForCausalLM.from_pretrained("a/b")\ntorch.save(scheduler.state_dict(), "sched.pt")\n'
        },
    ),
    (
        "CKP051",
        {
            "t.py": HF
            + 'model = AutoModelForCausalLM.from_pretrained("a/b")\nema = Ema()\ntorch.save(ema.state_dict(), "ema.pt")\n'
        },
    ),
    (
        "HST001",
        {"t.py": HF + "model.cuda()\n" + LOOP + "    if step % 50:\n        continue\n    print(loss.item())\n"},
    ),
    (
        "HST001",
        {"t.py": HF + "model.cuda()\n" + LOOP + "    if step == 3:\n        print(loss.item())\n        break\n"},
    ),
    (
        "MSK052",
        {
            "t.py": HF
            + (
                "from mine import IGNORE_INDEX\ntok = AutoTokenizer.from_pretrained('a')\nb = tok(texts, padding=True)\n"
                "b['labels'] = b['input_ids'].clone()\nb['labels'][b['attention_mask'] == 0] = IGNORE_INDEX\n"
            )
        },
    ),
]


@pytest.mark.parametrize(("code", "files"), BAD, ids=lambda one: one if isinstance(one, str) else next(iter(one)))
def test_a_fault_is_found_in_each_shape(tmp_path: Path, code: str, files: dict[str, str]) -> None:
    assert code in {finding.code for finding in audited(tmp_path, files).findings}


@pytest.mark.parametrize(("code", "files"), GOOD, ids=lambda one: one if isinstance(one, str) else next(iter(one)))
def test_what_only_looks_like_it_is_let_be(tmp_path: Path, code: str, files: dict[str, str]) -> None:
    assert code not in {finding.code for finding in audited(tmp_path, files).findings}
