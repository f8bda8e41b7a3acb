"""Promise: loops over models and data sets of a project's own are read like those over a library's."""

from pathlib import Path

import pytest

from tests.audit.made_up import audited

MODEL = """import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm, self.inner = nn.LayerNorm(dim), nn.Linear(dim, dim)
%s

    def forward(self, x%s):
%s


class Net(nn.Module):
    def __init__(self, words, dim, layers):
        super().__init__()
        self.embed = nn.Embedding(words, dim)
        self.blocks = nn.ModuleList(Block(dim) for _ in range(layers))
        self.head = nn.Linear(dim, words)

    def forward(self, ids, labels=None):
        x = self.embed(ids)
        for block in self.blocks:
            x = block(x)
        return self._loss(self.head(x), labels) if labels is not None else self.head(x)

    def _loss(self, logits, labels):
        return nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())
"""
PLAIN = MODEL % ("", "", "        return x + self.inner(self.norm(x))")
EITHER_WAY = MODEL % (
    "        self.flash = True",
    "",
    "        if self.flash:\n            return x + self.inner(self.norm(x))\n"
    "        return x + self.inner(self.norm(x)) * 1.0",
)
UNUSED = MODEL % ("        self.gate = nn.Linear(dim, 1)", "", "        return x + self.inner(self.norm(x))")
ROUTED = MODEL % (
    "        self.experts = nn.ModuleList(nn.Linear(dim, dim) for _ in range(8))",
    "",
    "        at = self.inner(x).topk(2).indices\n        return x + self.experts[int(at[0])](self.norm(x))",
)
SKIPPED = MODEL % ("", ", deep", "        return x + self.inner(self.norm(x)) if deep else x")
LOOP = """import torch
from torch.nn.parallel import DistributedDataParallel as DDP
from model import Net

model = Net(50304, 768, 12).to('cuda')
model = DDP(model, %s)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
for ids, labels in loader:
    loss = model(ids, labels)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""
LOOKS = {"train.py": LOOP % "find_unused_parameters=True", "run.sh": "torchrun --nproc_per_node 4 train.py\n"}
ACCELERATE = """import torch
from accelerate import Accelerator, DistributedDataParallelKwargs
from model import Net

kwargs = DistributedDataParallelKwargs(find_unused_parameters=True)
accelerator = Accelerator(kwargs_handlers=[kwargs])
model, optimizer, loader = accelerator.prepare(Net(50304, 768, 12), optimizer, loader)
for ids, labels in loader:
    accelerator.backward(model(ids, labels))
    optimizer.step()
    optimizer.zero_grad()
"""

DATA = """import torch
from torch.utils.data import Dataset
%s

class Texts(Dataset):
    def __init__(self, lines%s):
        self.lines = lines
%s

    def __len__(self):
        return len(self.lines)
%s
"""
LOADS = """import torch
from data import Texts
from torch.utils.data import DataLoader

loader = DataLoader(Texts(lines%s), batch_size=8, num_workers=%d)
rows = Texts(lines%s)
loader = DataLoader(rows, batch_size=8, num_workers=%d)
for batch in loader:
    model(batch.to('cuda')).loss.backward()
    optimizer.step()
"""
TIKTOKEN = DATA % (
    "import tiktoken\n",
    "",
    "        self.enc = tiktoken.get_encoding('gpt2')",
    "\n    def __getitem__(self, at):\n        return torch.tensor(self.enc.encode_ordinary(self.lines[at])[:1024])",
)
SENTENCEPIECE = DATA % (
    "import sentencepiece as spm\n",
    ", path",
    "        self.sp = spm.SentencePieceProcessor(model_file=path)",
    "\n    def __getitem__(self, at):\n        return torch.tensor(self.sp.encode(self.lines[at]))",
)
BY_A_METHOD = DATA % (
    "",
    ", tokenizer",
    "        self.tokenizer = tokenizer",
    "\n    def _ids(self, text):\n        return self.tokenizer(text)['input_ids']\n"
    "\n    def __getitem__(self, at):\n        return torch.tensor(self._ids(self.lines[at]))",
)
BEFORE = DATA % (
    "import tiktoken\n",
    "",
    "        enc = tiktoken.get_encoding('gpt2')\n        self.rows = [enc.encode_ordinary(one) for one in lines]",
    "\n    def __getitem__(self, at):\n        return torch.tensor(self.rows[at])",
)
PADS = DATA % (
    "from transformers import AutoTokenizer\n",
    "",
    "        self.tok = AutoTokenizer.from_pretrained('gpt2')",
    "\n    def __getitem__(self, at):\n        return self.tok.pad({'input_ids': self.lines[at]})",
)


def with_loader(data: str, more: str = "", workers: int = 0) -> dict[str, str]:
    return {"data.py": data, "train.py": LOADS % (more, workers, more, workers)}


SAVES = """import torch

model = model.cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
for step in range(20000):
    for micro in range(accumulation):
        loss = model(next(batches)) / accumulation
        loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if step %% 1000 == 0:
        torch.save(%s, f'{out}/{step}.pt')
"""

SCORES = """import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained('a/b')
model = AutoModelForCausalLM.from_pretrained('a/b', torch_dtype=torch.bfloat16%s)
%s
model.eval()
with torch.inference_mode():
    for row in rows:
        inputs = tokenizer(row, return_tensors='pt')
        print(model(**inputs, labels=inputs['input_ids']).loss)
"""
ADAPTED = "model = PeftModel.from_pretrained(model, 'adapter')"

LORA = """from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

model = AutoModelForCausalLM.from_pretrained('mistralai/Mistral-7B-v0.3')
%smodel = get_peft_model(model, LoraConfig(r=8, target_modules=['q_proj']))
args = TrainingArguments(output_dir='o', gradient_checkpointing=True%s)
Trainer(model=model, args=args, train_dataset=rows).train()
"""
OLD = {"requirements.txt": "transformers==4.57.3\npeft==0.17.1\n"}

HEAD = """import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM
%s
model = get_peft_model(model, LoraConfig(r=8, target_modules=['q_proj', %s]))
model.cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
for batch in loader:
    model(**batch).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""
LIGER = (
    "from liger_kernel.transformers import AutoLigerKernelForCausalLM\n"
    "model = AutoLigerKernelForCausalLM.from_pretrained('Qwen/Qwen2.5-7B')"
)
PATCHED = (
    "from liger_kernel.transformers import apply_liger_kernel_to_qwen2\napply_liger_kernel_to_qwen2(%s)\n"
    "model = AutoModelForCausalLM.from_pretrained('Qwen/Qwen2.5-7B')"
)

MAKES = """import json, pathlib
args = {
    "model": "Qwen/Qwen2.5-7B",
    "trainer": {"output_dir": "o", "ddp_find_unused_parameters": True, "bf16": True},
}
%s
"""
TEXT = 'pathlib.Path("runs/args.json").write_text(json.dumps(args, indent=2))'
FILE = 'with open("runs/args.json", "w") as f:\n    json.dump(args, f)'
YAML = 'import yaml\nwith open("runs/args.json", "w") as f:\n    yaml.safe_dump(args, f)'
ANOTHER = 'with open("results.json", "w") as f:\n    json.dump(args, f)'
TAKES = """import json, sys
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
with open(%s) as f:
    cfg = json.load(f)
model = AutoModelForCausalLM.from_pretrained(cfg["model"])
Trainer(model=model, args=TrainingArguments(**cfg["trainer"]), train_dataset=d).train()
"""
STARTS = "python make.py\ntorchrun --nproc_per_node 4 train.py runs/args.json\n"


def by_helper(writes: str, reads: str = "sys.argv[1]") -> dict[str, str]:
    return {"make.py": MAKES % writes, "train.py": TAKES % reads, "run.sh": STARTS}


@pytest.mark.parametrize(
    ("code", "files", "found"),
    [
        ("DST002", {**LOOKS, "model.py": PLAIN}, True),
        ("DST002", {**LOOKS, "model.py": EITHER_WAY}, True),
        ("DST002", {"train.py": ACCELERATE, "run.sh": LOOKS["run.sh"], "model.py": PLAIN}, True),
        ("DST002", {**LOOKS, "model.py": UNUSED}, False),
        ("DST002", {**LOOKS, "model.py": ROUTED}, False),
        ("DST002", {**LOOKS, "model.py": SKIPPED}, False),
        ("DST002", {**LOOKS, "train.py": LOOP % "find_unused_parameters=False", "model.py": PLAIN}, False),
        ("DST002", {**LOOKS, "elsewhere.py": PLAIN}, False),  # the class that is trained was not read
        ("HST005", with_loader(TIKTOKEN), True),
        ("HST005", with_loader(SENTENCEPIECE, ", 'sp.model'"), True),
        ("HST005", with_loader(BY_A_METHOD, ", tokenizer"), True),
        ("HST005", with_loader(TIKTOKEN, workers=4), False),
        ("HST005", with_loader(BEFORE), False),
        ("HST005", with_loader(PADS), False),
        ("CKP002", {"train.py": SAVES % "model.state_dict()"}, True),
        ("CKP002", {"train.py": SAVES % "model.module.state_dict()"}, True),
        ("CKP002", {"train.py": SAVES % "{'m': model.state_dict(), 'o': optimizer.state_dict()}"}, False),
        ("HST004", {"score.py": SCORES % ("", ADAPTED)}, True),
        ("HST004", {"score.py": SCORES % ("", ADAPTED.replace("model =", "tuned =").replace(")", ").eval()"))}, True),
        ("HST004", {"score.py": SCORES % (", device_map='cuda'", ADAPTED)}, False),
        ("HST004", {"score.py": SCORES % ("", ADAPTED + ".to('cuda')")}, False),
        ("HST004", {"score.py": SCORES % ("", "evaluate(model)")}, False),
        ("MEM002", {**OLD, "train.py": LORA % ("", "")}, True),
        ("MEM002", {**OLD, "train.py": LORA % ("model.config.use_cache = False\n", ", bf16=True")}, True),
        ("MEM002", {**OLD, "train.py": LORA % ("model.enable_input_require_grads()\n", "")}, False),
        ("MEM002", {**OLD, "train.py": LORA % ("model.gradient_checkpointing_enable()\n", "")}, False),
        (
            "MEM002",
            {**OLD, "train.py": LORA % ("", ", gradient_checkpointing_kwargs={'use_reentrant': False}")},
            False,
        ),
        ("MEM002", {"requirements.txt": "transformers==5.1.0\n", "train.py": LORA % ("", "")}, False),
        ("LOR003", {"t.py": HEAD % (LIGER, "'lm_head'")}, True),
        ("LOR003", {"t.py": HEAD % (PATCHED % "", "'lm_head'")}, True),
        ("LOR003", {"t.py": HEAD % (PATCHED % "fused_linear_cross_entropy=False", "'lm_head'")}, False),
        ("LOR003", {"t.py": HEAD % (LIGER, "'v_proj'")}, False),
        # Arguments that a helper writes to a file, and the trainer's script reads.
        ("DST002", by_helper(TEXT), True),
        ("DST002", by_helper(FILE), True),
        ("DST002", by_helper(YAML, '"runs/args.json"'), True),
        ("DST002", by_helper(ANOTHER, '"runs/args.json"'), False),
        ("DST002", by_helper(TEXT.replace("args, ", "{'loss': 1.0}, ")), False),
    ],
)
def test_it_is_found_and_its_neighbour_is_not(code: str, files: dict[str, str], found: bool, tmp_path: Path) -> None:
    result = audited(tmp_path, files, select=(code,))
    assert bool(result.findings) is found, [one.message for one in result.findings]
