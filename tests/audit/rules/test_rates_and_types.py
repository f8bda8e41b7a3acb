"""Promise: speeds that choose or boast, and types of 16 bits that are replaced or too coarse, are found in rarer shapes."""

from pathlib import Path

import pytest

from tests.audit.made_up import audited


def codes(folder: Path, files: dict[str, str], code: str) -> list[str]:
    return [one.message for one in audited(folder, files).findings if one.code == code]


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("We use batch size 2: it runs at 5.1 it/s, batch size 8 only reaches 1.9 it/s.\n", True),
        ("Batch size 2 runs at 5.1 it/s, batch size 8 at 1.9 it/s, which is 15 rows/s.\n", False),
        ("| batch | it/s |\n|---|---|\n| 4 | 9.1 |\n| 8 | 6.0 |\n\nBatch 4 is the fastest, so we take it.\n", True),
        ("| batch | it/s |\n|---|---|\n| 4 | 9.1 |\n| 8 | 6.0 |\n\nMeasured in May.\n", False),
    ],
)
def test_chosen_by_steps_a_second(tmp_path: Path, text: str, wrong: bool) -> None:
    found = audited(tmp_path, {"README.md": text, "sft.yaml": "model_name_or_path: Qwen/Qwen2.5-0.5B\n"}).findings
    places = [one.place.line for one in found if one.code == "MSR005"]
    assert places == ([text.count("\n")] if wrong else [])


TIMED = """import time
import torch
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer, DataCollatorForLanguageModeling
tok = AutoTokenizer.from_pretrained("Qwen/Qwen2.5-0.5B")
torch.manual_seed(0)
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-0.5B", torch_dtype=torch.{dtype}).cuda()
rows = [tok(line, truncation=True, max_length=1024) for line in open("a.txt")]
loader = DataLoader(rows, batch_size=16, shuffle=True, collate_fn=DataCollatorForLanguageModeling(tok, mlm=False))
opt = torch.optim.{optim}(model.parameters(), lr={lr})
times, rates, t = [], [], time.time()
for step, batch in enumerate(loader):
    model(**batch.to("cuda")).loss.backward()
    opt.step()
    opt.zero_grad()
    torch.cuda.synchronize()
    times.append(time.time() - t)
    rates.append(int(batch["attention_mask"].sum()) / (time.time() - t))
    t = time.time()
{shown}
"""


def timed(shown: str = "", dtype: str = "float32", lr: str = "1e-4", optim: str = "AdamW") -> dict[str, str]:
    return {"train.py": TIMED.format(shown=shown, dtype=dtype, lr=lr, optim=optim)}


@pytest.mark.parametrize(
    ("shown", "wrong"),
    [
        ("print('tokens/s', 16 * 512 / min(times))", True),
        ("print(f'throughput: {max(rates):.0f} tokens/s')", True),
        ("print(f'peak throughput {max(rates):.0f} tok/s')", False),
        ("print(f'throughput: {sum(rates) / len(rates):.0f} tokens/s')", False),
    ],
)
def test_the_fastest_step(tmp_path: Path, shown: str, wrong: bool) -> None:
    assert bool(codes(tmp_path, timed(shown), "MSR007")) is wrong


@pytest.mark.parametrize(
    ("shown", "wrong"),
    [
        ("print(f'{16 * 1024 * 20 / (time.time() - t):.0f} tokens/sec')", True),
        ("print(f'{16 * 7 * 20 / (time.time() - t):.0f} tokens/sec')", False),
    ],
)
def test_rows_times_the_limit_as_numbers(tmp_path: Path, shown: str, wrong: bool) -> None:
    text = timed(shown)["train.py"].replace(
        '    rates.append(int(batch["attention_mask"].sum()) / (time.time() - t))\n', ""
    )
    assert bool(codes(tmp_path, {"train.py": text}, "MSR001")) is wrong


@pytest.mark.parametrize(
    ("dtype", "lr", "optim", "wrong"),
    [
        ("bfloat16", "1e-6", "AdamW", True),
        ("bfloat16", "2e-4", "AdamW", False),
        ("float32", "1e-6", "AdamW", False),
        ("bfloat16", "1e-6", "SGD", False),
    ],
)
def test_loops_in_bfloat16(tmp_path: Path, dtype: str, lr: str, optim: str, wrong: bool) -> None:
    assert bool(codes(tmp_path, timed("", dtype, lr, optim), "PRC004")) is wrong


LOOP = """import torch
from accelerate import Accelerator
from transformers import AutoModelForCausalLM
acc = Accelerator({})
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-0.5B")
opt = torch.optim.AdamW(model.parameters(), lr=1e-5)
model, opt, loader = acc.prepare(model, opt, loader)
for batch in loader:
    acc.backward(model(**batch).loss)
    opt.step()
    opt.zero_grad()
"""


@pytest.mark.parametrize(
    ("given", "wrong"), [('mixed_precision="fp16"', True), ('mixed_precision="bf16"', False), ("", False)]
)
def test_one_type_of_16_bits_replaces_the_other(tmp_path: Path, given: str, wrong: bool) -> None:
    files = {
        "acc.yaml": "compute_environment: LOCAL_MACHINE\ndistributed_type: MULTI_GPU\nmixed_precision: bf16\n"
        "num_processes: 2\n",
        "run.sh": "accelerate launch --config_file acc.yaml train.py\n",
        "train.py": LOOP.format(given),
    }
    assert bool(codes(tmp_path, files, "PRC002")) is wrong


@pytest.mark.parametrize(
    ("model", "asked", "wrong"),
    [
        ("google/flan-t5-large", "fp16", True),
        ("t5-small", "fp16", True),
        ("google/flan-t5-large", "bf16", False),
        ("facebook/bart-base", "fp16", False),
    ],
)
def test_t5_in_float16(tmp_path: Path, model: str, asked: str, wrong: bool) -> None:
    text = (
        "from transformers import AutoModelForSeq2SeqLM, Seq2SeqTrainer, Seq2SeqTrainingArguments\n"
        f'model = AutoModelForSeq2SeqLM.from_pretrained("{model}")\n'
        f'args = Seq2SeqTrainingArguments("out", {asked}=True)\nSeq2SeqTrainer(model, args, train_dataset=rows).train()\n'
    )
    assert bool(codes(tmp_path, {"train.py": text}, "PRC008")) is wrong


@pytest.mark.parametrize(
    ("compiled", "wrong"),
    [
        ("torch.compile(model, mode='reduce-overhead')", True),
        ("torch.compile(model, mode='max-autotune')", True),
        ("torch.compile(model, mode='max-autotune-no-cudagraphs')", False),
        ("torch.compile(model, mode='reduce-overhead', dynamic=True)", False),
        ("torch.compile(model)", False),
    ],
)
def test_graphs_of_one_shape(tmp_path: Path, compiled: str, wrong: bool) -> None:
    text = timed()["train.py"].replace("rows =", f"model = {compiled}\nrows =")
    assert bool(codes(tmp_path, {"train.py": text}, "CMP003")) is wrong


@pytest.mark.parametrize(
    ("pinned", "loaded", "forward", "wrong"),
    [
        ("4.51.3", "", "", True),
        ("5.0.0", "", "", False),
        ("4.51.3", ", torch_dtype='bfloat16'", "", False),
        ("4.51.3", "", "amp = torch.autocast('cuda', torch.bfloat16)", False),
    ],
)
def test_flash_in_a_loop_of_float32(tmp_path: Path, pinned: str, loaded: str, forward: str, wrong: bool) -> None:
    text = timed(forward)["train.py"].replace(
        ", torch_dtype=torch.float32", f", attn_implementation='flash_attention_2'{loaded}"
    )
    files = {"train.py": text, "requirements.txt": f"torch==2.6.0\ntransformers=={pinned}\nflash-attn==2.7.4\n"}
    assert bool(codes(tmp_path, files, "ATT005")) is wrong


@pytest.mark.parametrize(
    ("attention", "transformers", "wrong"),
    [("sdpa", "4.51.3", True), ("flash_attention_2", "4.51.3", False), ("sdpa", "4.54.0", False)],
)
def test_padding_free_of_an_old_release(tmp_path: Path, attention: str, transformers: str, wrong: bool) -> None:
    text = (
        "from trl import SFTConfig, SFTTrainer\n"
        f"args = SFTConfig('o', bf16=True, padding_free=True, model_init_kwargs={{'attn_implementation': '{attention}'}})\n"
        "SFTTrainer('Qwen/Qwen2.5-0.5B', args=args, train_dataset=rows).train()\n"
    )
    files = {"train.py": text, "requirements.txt": f"trl==0.17.0\ntransformers=={transformers}\nflash-attn==2.7.4\n"}
    assert bool(codes(tmp_path, files, "PAD001")) is wrong
