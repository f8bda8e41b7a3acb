"""Promise: what makes a device wait for its host is found in code as people write it, and near misses are left"
" alone."""

from pathlib import Path

import pytest

from tests.audit.made_up import audited
from tests.audit.rules.scripts import LOOP, in_loop, said

LAYER = """
import torch
from torch import nn
class Gate(nn.Module):
    def forward(self, x, mask):
        %s
        return x
"""
LOSS = """
import torch
from transformers import Trainer
class Weighted(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        loss = model(**inputs).loss
        %s
        return loss
"""
DATA = """
from torch.utils.data import DataLoader, Dataset
class Rows(Dataset):
    def __getitem__(self, index):
        return %s
data = Rows()
loader = DataLoader(data, batch_size=8, %s)
"""
LOAD = """
import torch
from transformers import AutoModelForCausalLM
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-0.5B"%s)
%s
for batch in loader:
    loss = model(**batch).loss
    loss.backward()
"""
MAP = "from datasets import load_dataset\nrows = load_dataset('json')\nflag = parse()\nrows = rows.map(f%s)\n"

FOUND = [
    ("HST001", in_loop("total += loss.item()")),
    ("HST001", in_loop("losses.append(loss.detach().cpu().item())")),
    ("HST001", in_loop("total += float(loss)")),
    ("HST001", in_loop("print(step, loss)")),
    ("HST001", in_loop("print(f'{step}: {loss:.3f}')")),
    ("HST001", in_loop("wandb.log({'loss': loss.item(), 'norm': grad_norm.item()})")),
    ("HST001", in_loop("track(loss)") + "\ndef track(loss):\n    seen.append(loss.item())\n"),
    ("HST001", in_loop("if accelerator.is_main_process:", "    bar.set_postfix(loss=loss.item())")),
    ("HST001", in_loop("print(f'{step} {outputs.loss}')")),
    ("HST001", LOSS % "self.seen.append(loss.item())"),
    ("HST001", (LOSS % "self.seen.append(loss.item())").replace("(Trainer)", "(SFTTrainer)")),
    ("HST001", LOSS % "if torch.isnan(loss): raise ValueError"),
    ("HST001", LOSS % "assert torch.isfinite(loss).all()"),
    ("HST001", in_loop("if not torch.isfinite(loss):", "    break")),
    ("HST002", LAYER % "scale = x.max().item()"),
    ("HST002", LAYER % "if mask.any(): x = x + 1"),
    ("HST002", LAYER % "if torch.isnan(x).any(): raise ValueError"),
    ("HST002", (LAYER % "n = x.cpu()").replace("nn.Module", "PreTrainedModel")),
    ("HST003", in_loop("torch.cuda.empty_cache()")),
    ("HST003", in_loop("gc.collect()")),
    ("HST003", "import torch\nfrom transformers import Trainer\nclass T(Trainer):\n    def training_step(self, *a):\n"
     "        torch.cuda.empty_cache()\n        return super().training_step(*a)\n"),
    ("HST003", in_loop("torch.cuda.synchronize()")),
    ("HST004", LOAD % ("", "")),
    ("HST004", LOAD % (", torch_dtype=torch.bfloat16", "model.train()")),
    ("HST005", DATA % ("tokenizer(self.rows[index])", "shuffle=True")),
    ("HST005", "from transformers import AutoTokenizer\ntok = AutoTokenizer.from_pretrained('m')\n"
     + DATA % ("tok(self.rows[index])", "shuffle=True")),
    ("HST005", DATA % ("self.tokenizer.apply_chat_template(self.rows[index])", "num_workers=0")),
    ("HST005", "from torch.utils.data import DataLoader\ndef collate(rows):\n    return tokenizer(rows)\n"
     "loader = DataLoader(rows, 8, collate_fn=collate)\n"),
    ("HST006", MAP % ", load_from_cache_file=False"),
    ("HST006", "import datasets\ndatasets.disable_caching()\n"),
]  # fmt: skip
LEFT = [
    ("HST001", in_loop("total += loss.detach()")),
    ("HST001", in_loop("if step % 10 == 0:", "    print(loss.item())")),
    ("HST001", in_loop("if step % 10:", "    continue", "print(loss.item())")),
    ("HST001", LOOP + "print(loss.item())\n"),
    ("HST001", in_loop("n = batch['attention_mask'].sum().item()")),
    ("HST001", in_loop("values = np.array(accuracies).item()")),
    ("HST001", in_loop("print('loss', step)")),
    ("HST001", in_loop("print(running_loss, total)")),
    ("HST001", in_loop("losses.append(loss.detach())", "print(len(losses))")),
    ("HST001", in_loop("print(f'{step}: loss')")),
    ("HST001", LOOP.replace("model.cuda()", "") + "    total += loss.item()\n"),
    ("HST001", LOOP + "for batch in validation:\n    seen.append(model(**batch).loss.item())\n"),
    ("HST001", LOSS % "self.total += loss.detach()"),
    ("HST001", LOSS % "if self.state.global_step % 50 == 0: self.seen.append(loss.item())"),
    ("HST001", LOSS % "if return_outputs and torch.isnan(loss): raise ValueError"),
    ("HST001", LOSS % "if torch.isnan(inputs['weights']).any(): raise ValueError"),
    ("HST001", LOSS % "self.bad |= torch.isnan(loss)"),
    ("HST001", (LOSS % "self.seen.append(loss.item())").replace("compute_loss", "prediction_step")),
    ("HST001", (LOSS % "self.seen.append(loss.item())").replace("(Trainer)", "(Reporter)")),
    ("HST002", LAYER % "scale = x.max()"),
    ("HST002", LAYER % "if not self.training: print(x.max().item())"),
    ("HST002", LAYER % "if self.layers is not None: x = x + 1"),
    ("HST002", LAYER.replace("forward", "extra_repr") % "return x.max().item()"),
    ("HST002", (LAYER % "scale = x.max().item()").replace("(nn.Module)", "")),
    ("HST003", in_loop("if step % 100 == 0:", "    torch.cuda.empty_cache()")),
    ("HST003", LOOP + "torch.cuda.empty_cache()\n"),
    ("HST003", in_loop("torch.cuda.synchronize()", "spent = time.perf_counter() - start")),
    ("HST003", "import torch\ndef free():\n    torch.cuda.empty_cache()\n"),
    ("HST004", LOAD % (", device_map='cuda'", "")),
    ("HST004", LOAD % ("", "model.to('cuda')")),
    ("HST004", LOAD % ("", "model = accelerator.prepare(model)")),
    ("HST004", LOAD % ("", "from .devices import place\nplace(model)")),
    ("HST004", (LOAD % ("", "")).replace("loss.backward()", "print(loss)")),
    ("HST005", DATA % ("self.rows[index]", "shuffle=True")),
    ("HST005", DATA % ("tokenizer(self.rows[index])", "num_workers=4")),
    ("HST005", DATA % ("tokenizer(self.rows[index])", "num_workers=args.workers")),
    ("HST005", (DATA % ("tokenizer(self.rows[index])", "shuffle=True")).replace("__getitem__", "prepare")),
    ("HST006", MAP % ", load_from_cache_file=True"),
    ("HST006", MAP % ""),
    ("HST006", MAP % ", load_from_cache_file=not flag"),
    ("HST006", "cells.map(f, load_from_cache_file=False)\n"),
]


@pytest.mark.parametrize(("code", "text"), FOUND)
def test_found(code: str, text: str, tmp_path: Path) -> None:
    assert len(said(code, tmp_path, text)) == 1


@pytest.mark.parametrize(("code", "text"), LEFT)
def test_left_alone(code: str, text: str, tmp_path: Path) -> None:
    assert not said(code, tmp_path, text)


@pytest.mark.parametrize(
    ("run", "line", "fires"),
    [
        ("accelerate launch --num_processes 8 -m trl.scripts.sft --config sft.yaml\n", "logging_steps: 1", True),
        ("torchrun --nproc_per_node=4 -m trl.scripts.sft --config sft.yaml\n", "logging_steps: 1", True),
        ("trl sft --config sft.yaml --num_processes 4 --logging_steps 1\n", "bf16: true", True),
        ("trl sft --config sft.yaml\n", "logging_steps: 1", False),  # one card, and steps that are not short
        ("torchrun --nproc_per_node=4 -m trl.scripts.sft --config sft.yaml\n", "logging_steps: 10", False),
        (
            "torchrun --nproc_per_node=4 -m trl.scripts.sft --config sft.yaml\n",
            "logging_steps: 1\nmax_steps: 50",
            False,
        ),
        ("torchrun --nproc_per_node=4 -m trl.scripts.sft --config sft.yaml\n", "logging_steps: 1  # read by CI", False),
    ],
)
def test_ranks_that_wait_for_each_other_at_every_step(tmp_path: Path, run: str, line: str, fires: bool) -> None:
    files = {"run.sh": run, "sft.yaml": f"model_name_or_path: Qwen/Qwen2.5-7B\ndataset_name: d.jsonl\n{line}\n"}
    found = audited(tmp_path, files, select=("HST052",)).findings
    assert bool(found) is fires
    assert all("ranks" in one.message for one in found)
