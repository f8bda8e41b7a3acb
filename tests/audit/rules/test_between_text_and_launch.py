"""Promise: what a document says of the data, what a launcher starts and what a layer is handed are read together."""

from pathlib import Path

import pytest

from tests.audit.made_up import audited
from tests.audit.rules.scripts import said

_PAIRS = """
from transformers import AutoTokenizer
tokenizer = AutoTokenizer.from_pretrained("{model}")
def pair(row):
    messages = [{{"role": "user", "content": row["question"]}}]
    {body}
"""
_RENDER = "tokenizer.apply_chat_template(messages, tokenize=False{0})"


@pytest.mark.parametrize(
    ("model", "body", "found"),
    [
        ("Qwen/Qwen2.5-7B-Instruct", f'return {{"prompt": {_RENDER}, "chosen": row["a"], "rejected": row["b"]}}', True),
        ("Qwen/Qwen2.5-7B-Instruct", f'row["prompt"] = {_RENDER}\n    row["completion"] = row["a"] + END', True),
        ("meta-llama/Llama-3.1-8B-Instruct", f'return {{"text": {_RENDER} + row["answer"]}}', True),
        ("google/gemma-2-2b-it", f'p = {_RENDER}\n    return {{"text": f"{{{{p}}}}{{{{row[\'answer\']}}}}"}}', True),
        ("mistralai/Mistral-7B-Instruct-v0.3", f'return {{"text": {_RENDER} + row["answer"]}}', False),
        ("Qwen/Qwen2.5-7B", f'return {{"text": {_RENDER} + row["answer"]}}', False),
        (
            "Qwen/Qwen2.5-7B-Instruct",
            f'return {{"text": {_RENDER} + "<|im_start|>assistant\\n" + row["answer"]}}',
            False,
        ),
        ("Qwen/Qwen2.5-7B-Instruct", f'return {{"text": {_RENDER}}}', False),
        (
            "Qwen/Qwen2.5-7B-Instruct",
            f'return {{"prompt": {_RENDER.format(", add_generation_prompt=True")}, "chosen": row["a"]}}',
            False,
        ),
    ],
)
def test_prompts_without_the_header_of_an_answer(tmp_path: Path, model: str, body: str, found: bool) -> None:
    text = _PAIRS.format(model=model, body=body.replace("{0}", "").replace("{{", "{").replace("}}", "}"))
    assert bool(said("MSK059", tmp_path, text)) is found


_TIMED = """
import time, torch
model.cuda()
for step, (x, y) in enumerate(loader):
    start = time.perf_counter()
    loss = crit(model(x.cuda()), y.cuda())
    loss.backward()
    opt.step()
    opt.zero_grad()
    torch.cuda.synchronize()
    spent += time.perf_counter() - start
{after}
"""


@pytest.mark.parametrize(
    ("file", "after", "found"),
    [
        ("train.py", 'torch.save(model.state_dict(), "a.pt")', True),
        ("train.py", "print(spent)", False),
        ("bench_step.py", 'torch.save(model.state_dict(), "a.pt")', False),
    ],
)
def test_a_wait_beside_a_clock(tmp_path: Path, file: str, after: str, found: bool) -> None:
    assert bool(audited(tmp_path, {file: _TIMED.format(after=after)}, select=("HST003",)).findings) is found


_CPU = """
import torch
from accelerate import Accelerator
acc = Accelerator(cpu={cpu})
model, opt, loader = acc.prepare(model, torch.optim.AdamW(model.parameters()), loader)
for batch in loader:
    acc.backward(model(**batch).loss)
    opt.step()
    opt.zero_grad()
"""


@pytest.mark.parametrize(("cpu", "ranks", "found"), [("True", 4, True), ("False", 4, False), ("True", 1, False)])
def test_accelerate_on_the_cpu(tmp_path: Path, cpu: str, ranks: int, found: bool) -> None:
    files = {"run__sh": f"accelerate launch --num_processes {ranks} train.py\n", "README__md": "On 4 GPUs.\n"}
    assert bool(said("HST004", tmp_path, _CPU.format(cpu=cpu), **files)) is found


_AXOLOTL = """base_model: mistralai/Mistral-7B-v0.3
datasets:
  - path: rows.jsonl
    type: alpaca
sequence_len: 8192
sample_packing: true
flash_attention: true
adapter: lora
gradient_accumulation_steps: 8
micro_batch_size: 4
num_epochs: {epochs}
bf16: {bf16}
fp16: false
tf32: true
"""


@pytest.mark.parametrize(
    ("words", "epochs", "found"),
    [
        ("The training file holds 1,500 recipes in alpaca\nformat, about 180 tokens each.", 2, True),
        ("The training file holds 1,500 recipes in alpaca\n\n## Else\n\nabout 180 tokens each.", 2, False),
        ("The training file holds 15,000 recipes in alpaca\nformat, about 1,800 tokens each.", 2, False),
    ],
)
def test_updates_by_a_sentence_over_two_lines(tmp_path: Path, words: str, epochs: int, found: bool) -> None:
    files = {"a.yml": _AXOLOTL.format(epochs=epochs, bf16="true"), "README.md": words + "\n"}
    assert bool(audited(tmp_path, files, select=("PAD002",)).findings) is found


@pytest.mark.parametrize(
    ("words", "bf16", "found"),
    [
        ("Train on one A100 in bf16 mixed precision.", "false", True),
        ("Train on one A100.", "false", False),
        ("Train on one A100 in bf16 mixed precision.", "true", False),
    ],
)
def test_tensor_float_where_bfloat16_is_told(tmp_path: Path, words: str, bf16: str, found: bool) -> None:
    files = {"a.yml": _AXOLOTL.format(epochs=2, bf16=bf16), "README.md": words + "\n"}
    findings = audited(tmp_path, files, select=("PRC006",)).findings
    assert ["TensorFloat-32" in one.message for one in findings] == [True] * found


_SPEED = """
import time
its = trainer.train().metrics["train_steps_per_second"]
baseline = 0.41  # {words}
print(f"speed-up {{its / baseline:.2f}}x")
"""


@pytest.mark.parametrize(
    ("words", "found"), [("same run with per_device_train_batch_size 1", True), ("same run before the kernels", False)]
)
def test_a_speed_up_in_steps(tmp_path: Path, words: str, found: bool) -> None:
    text = _SPEED.format(words=words).replace("baseline", "baseline_its")
    assert bool(said("MSR005", tmp_path, text)) is found


_BLOCKS = """
import torch
import torch.nn.functional as F
from torch import nn
class Block(nn.Module):
    def forward(self, x, mask):
        return F.scaled_dot_product_attention(x, x, x, attn_mask=mask)
class Net(nn.Module):
    def forward(self, ids, doc_ids):
        causal = torch.ones(ids.shape[1], ids.shape[1]).tril()
        mask = {mask}
        for block in self.blocks:
            x = block(x, mask)
        return x
for batch in loader:
    model(**batch).backward()
    opt.step()
"""


@pytest.mark.parametrize(
    ("mask", "found"),
    [("(doc_ids[:, None, :, None] == doc_ids[:, None, None, :]) & causal", True), ("causal", False)],
)
def test_a_mask_of_documents_that_blocks_get(tmp_path: Path, mask: str, found: bool) -> None:
    assert bool(said("ATT001", tmp_path, _BLOCKS.format(mask=mask))) is found


_JOINS = """
import torch
from itertools import chain
from transformers import AutoModelForCausalLM
def encode(batch):
    return {{"input_ids": [tok(f"{words}")["input_ids"] for p, a in zip(batch["prompt"], batch["{column}"])]}}
def pack(batch, block):
    stream = list(chain.from_iterable(batch["input_ids"]))
    return {{"input_ids": [stream[i : i + block] for i in range(0, len(stream), block)]}}
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-0.5B").cuda()
opt = torch.optim.AdamW(model.parameters())
for batch in loader:
    model(**batch).loss.backward()
    opt.step()
"""


@pytest.mark.parametrize(
    ("words", "column", "found"),
    [("{p}{a}", "answer", True), ("<|user|>{p}<|assistant|>{a}", "text", True), ("{p}{a}", "text", False)],
)
def test_answers_that_are_joined_to_a_stream(tmp_path: Path, words: str, column: str, found: bool) -> None:
    assert bool(said("PAD001", tmp_path, _JOINS.format(words=words, column=column))) is found


_SENT = """
import torch
{device}
model.to(device)
for x in loader:
    model(x).mean().backward()
    opt.step()
"""


@pytest.mark.parametrize(
    ("device", "found"),
    [
        ('device = torch.device("cpu")', True),
        (
            'if args.accel:\n    device = torch.accelerator.current_accelerator()\nelse:\n    device = torch.device("cpu")',
            False,
        ),
    ],
)
def test_a_device_of_two_branches(tmp_path: Path, device: str, found: bool) -> None:
    files = {"README__md": "On one A100.\n"}
    assert bool(said("HST004", tmp_path, _SENT.format(device=device), **files)) is found
