"""Promise: what is right in shell and Python is not called an error; each with the case that is wrong beside it."""

from pathlib import Path

import pytest

from dynotune.audit.facts.padded import _collators
from dynotune.audit.read.project import read_project
from dynotune.audit.schema import Schemas
from tests.audit.made_up import audited
from tests.audit.rules.scripts import TIMED, said

CUT = "--model m \\\n    # why\n    --learning_rate 1e-5"


@pytest.mark.parametrize(
    ("run", "found"),
    [
        (f"trl sft {CUT}\n", True),
        (f"if true; then\n  trl sft {CUT}\nfi\n", True),
        (f'ARGS=({CUT}\n)\ntrl sft "${{ARGS[@]}}"\n', False),
        (f"ARGS+=( {CUT} )\ntrl sft\n", False),
        (f"cat > run.txt <<EOF\ntrl sft {CUT}\nEOF\ntrl sft --model_name_or_path m\n", False),
        (f"ARGS=(a)\ncat <<EOF\nb\nEOF\ntrl sft {CUT}\n", True),
    ],
)
def test_a_comment_in_an_array_or_a_here_document_cuts_nothing(tmp_path: Path, run: str, found: bool) -> None:
    assert bool(audited(tmp_path, {"run.sh": run}, select=("CFG020",)).findings) is found


PADDED = """
from transformers import AutoTokenizer, DataCollatorForSeq2Seq, default_data_collator
tok = AutoTokenizer.from_pretrained("Qwen/Qwen2.5-0.5B")
def encode(row):
    out = tok(row["t"], {padding})
    out["labels"] = out["input_ids"].copy()
    return out
{rest}
"""


@pytest.mark.parametrize(
    ("padding", "rest", "found"),
    [
        ("padding=True", "collate = default_data_collator", True),
        ("padding=True", "collate = DataCollatorForSeq2Seq(tok)", False),
        ('padding="max_length", max_length=9', "collate = DataCollatorForSeq2Seq(tok)", True),
        ("truncation=True", 'asked = tok(["a", "b"], padding=True).to("cuda")\nmodel.generate(**asked)', False),
        ("truncation=True", 'model.generate(**tok(["a", "b"], padding=True))', False),
        ("padding=True", 'asked = tok(["a", "b"], padding=True)\nmodel.generate(**asked)', True),
        ("padding=True", 'out = tok(["a", "b"], padding=True)\nmodel.generate(**out)', True),
    ],
)
def test_padding_that_is_in_no_label(tmp_path: Path, padding: str, rest: str, found: bool) -> None:
    text = PADDED.format(padding=padding, rest=rest).replace("DataCollatorForSeq2Seq, ", "")
    assert bool(said("MSK052", tmp_path, text)) is found


RENDERED = """
from transformers import AutoTokenizer
tok = AutoTokenizer.from_pretrained("meta-llama/Llama-3.2-1B-Instruct")
{}
"""


@pytest.mark.parametrize(
    ("rest", "found"),
    [
        ("def show(row):\n    text = {}\n    print(text)\ndef encode(text):\n    return tok(text)", False),
        ("def main():\n    text = {}\n    print(text)\n    def encode(text):\n        return tok(text)", False),
        ("text = {}\nrows = rows.map(lambda text: tok(text))", False),
        ("def show(row):\n    text = {}\n    return tok(text)", True),
        ("async def show(row):\n    text = {}\n    return tok(text)", True),
        ("text = {}\nids = tok(text)", True),
        ("for row in rows:\n    text = {}\n    ids.append(tok(text))", True),
    ],
)
def test_a_name_of_another_function_is_another(tmp_path: Path, rest: str, found: bool) -> None:
    text = RENDERED.format(rest.format("tok.apply_chat_template(row, tokenize=False)"))
    assert bool(said("MSK053", tmp_path, text)) is found


SAMPLED = """
import torch
from torch.utils.data import DataLoader, DistributedSampler
{}
for epoch in range(3):
    for batch in loader:
        model(**batch).loss.backward()
        optimizer.step()
"""


@pytest.mark.parametrize(
    ("loaders", "found"),
    [
        ("other = DataLoader(val_rows, sampler=DistributedSampler(val_rows))", False),
        ("other = DataLoader(a, sampler=DistributedSampler(data['validation']))", False),
        ("loader = DataLoader(rows, shuffle=True)\nother = DataLoader(b, sampler=DistributedSampler(b))", False),
        ("loader = DataLoader(rows, sampler=DistributedSampler(rows))", True),
        ("loader = DataLoader(rows, **more)\nother = DataLoader(b, sampler=DistributedSampler(b))", True),
        ("loader = DataLoader(retrieval, sampler=DistributedSampler(retrieval))", True),
    ],
)
def test_a_sampler_that_the_training_does_not_read(tmp_path: Path, loaders: str, found: bool) -> None:
    assert bool(said("DST054", tmp_path, SAMPLED.format(loaders))) is found


RANKS = """
import os
import torch
world_size = int(os.environ["WORLD_SIZE"])
"""


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("accum_ms = total_ms / micro_batches", False),
        ("accum_loss = total_loss / micro_batches", False),
        ("accum_each = total_work / micro_batches", False),
        ("accum = total_batch // micro_batch", True),
        ("accum = target_bs // micro_batch", True),
        ("target = 256\naccum = target // micro_batch", True),
        ("accum = cfg.global_bsz // micro_batch", True),
        ("accum = total_batch // micro_batch\naccum = accum // world_size", False),
    ],
)
def test_an_accumulation_is_of_a_batch(tmp_path: Path, line: str, found: bool) -> None:
    assert bool(said("DST052", tmp_path, f"{RANKS}{line}\n")) is found


TAUGHT = """
import torch
from transformers import AutoModelForCausalLM
{before}
optimizer = torch.optim.AdamW(model.parameters())
for batch in loader:
    {asked}
    loss = distance(model(**batch).logits, wanted)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""
LOADED = 'teacher = AutoModelForCausalLM.from_pretrained("m").cuda().eval()'
PLAIN = "wanted = teacher(**batch).logits"
HELPER = f"{LOADED}\n{{}}def targets(batch):\n    return teacher(**batch).logits"


@pytest.mark.parametrize(
    ("before", "asked", "found"),
    [
        (LOADED, PLAIN, True),
        (f"{LOADED}.requires_grad_(True)", PLAIN, True),
        (f"{LOADED}.requires_grad_(False)", PLAIN, False),
        (LOADED.replace("= ", "= (\n    ") + "\n    .requires_grad_(False)\n)", PLAIN, False),
        ("ref_model = create_reference_model(model)", "wanted = ref_model(**batch).logits", False),
        (HELPER.format("@torch.no_grad()\n"), "wanted = targets(batch)", False),
        (HELPER.format("@torch.inference_mode()\n"), "wanted = targets(batch)", False),
        (HELPER.format("@timed\n"), "wanted = targets(batch)", True),
    ],
)
def test_a_teacher_without_gradients(tmp_path: Path, before: str, asked: str, found: bool) -> None:
    assert bool(said("MEM052", tmp_path, TAUGHT.format(before=before, asked=asked))) is found


FACTORY = "model_name_or_path: a/b\nstage: sft\nfinetuning_type: lora\ntemplate: qwen\noutput_dir: out\ndataset: d\n"


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        ('eval_strategy: "no"\neval_steps: 500\n', False),
        ("eval_strategy: no\neval_steps: 500\n", False),
        ("eval_steps: 500\n", False),
        ("eval_strategy: steps\neval_steps: 500\n", True),
        ("eval_strategy: epoch\n", True),
        ("do_eval: true\n", True),
    ],
)
def test_llama_factory_wants_an_evaluation_by_its_strategy(tmp_path: Path, lines: str, found: bool) -> None:
    assert bool(audited(tmp_path, {"lf.yaml": FACTORY + lines}, select=("CFG018",)).findings) is found


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("print(100 * data_time / took)", False),
        ("print('share of a step', 100 * data_time / took)", False),
        ("share = step_time / (time.time() - start)", False),
        ("print('tokens a second', tokens / took)", True),
        ("print(f'{tokens / took:.1f}')", True),
        ("speed = stats['tokens'] / took", True),
        ("speed = len(rows) * epochs / took", True),
        ("speed = (\n    n\n    / took\n)", True),
        ("speed = n / max(took, 1e-9)", True),
    ],
)
def test_a_share_of_the_time_is_no_speed(tmp_path: Path, line: str, found: bool) -> None:
    assert (
        bool(said("MSR004", tmp_path, TIMED.format(inside="pass", after=f"took = time.time() - start\n{line}")))
        is found
    )


def test_a_collator_s_own_width_counts(tmp_path: Path) -> None:
    """A width of the file by the same name is another."""
    text = """
import torch
width = {}
model.cuda()
def collate(rows):
    width = {}
    ids = torch.zeros((len(rows), width), dtype=torch.long)
    return {{"input_ids": ids, "attention_mask": ids != 0}}
trainer = Trainer(model, args, data_collator=collate)
"""
    script = audited(tmp_path, {"train.py": text.format(512, 64)}).project.scripts[0]
    assert [one.length for one in _collators(script)] == []
    script = audited(tmp_path, {"train.py": text.format(64, 512)}).project.scripts[0]
    assert [one.length for one in _collators(script)] == [512]


FLASH = (
    "import torch\nfrom transformers import AutoModelForCausalLM, Trainer, TrainingArguments\n"
    "model = AutoModelForCausalLM.from_pretrained('Qwen/Qwen2.5-7B', dtype=torch.bfloat16,"
    " attn_implementation='flash_attention_2')\n"
    "Trainer(model=model, args=TrainingArguments('out', bf16=True, seed=1), train_dataset=rows).train()\n"
)


@pytest.mark.parametrize(
    ("readme", "found"),
    [
        ("    pip install -r requirements.txt\n    pip install flash-attn==2.8.3 --no-build-isolation\n", False),
        ("    uv pip install flash_attn\n", False),
        ("    pip install -r requirements.txt\n", True),
        ("Needs flash-attn.\n", True),
    ],
)
def test_a_package_that_a_document_installs(tmp_path: Path, readme: str, found: bool) -> None:
    files = {"train.py": FLASH, "requirements.txt": "torch\ntransformers\n", "README.md": readme}
    assert bool(audited(tmp_path, files, select=("ATT005",)).findings) is found


def test_a_comment_behind_an_install_asks_for_nothing(tmp_path: Path) -> None:
    files = {"train.py": FLASH, "setup.sh": "pip install torch transformers  # flash-attn is not needed\n"}
    assert len(audited(tmp_path, files, select=("ATT005",)).findings) <= 1
    asked = read_project(tmp_path, schemas=Schemas.of()).asked
    assert [one.name for one in asked] == ["torch", "transformers"]


OWN_LORA = """import argparse
from peft import LoraConfig, get_peft_model

parser = argparse.ArgumentParser()
parser.add_argument("--config")
parser.add_argument("--lora_alpha", type=int, default=16)
args = parser.parse_args()
model = get_peft_model(model, LoraConfig(lora_alpha=args.lora_alpha))
"""
TRL_KEYS = (
    "model_name_or_path: Qwen/Qwen2.5-7B\ndataset_name: a/b\nmax_seq_length: 1024\nlora_alpha: 32\noutput_dir: o\n"
    "per_device_train_batch_size: 2\nlearning_rate: 1.0e-4\nnum_train_epochs: 1\n"
)


def test_keys_of_adapters_that_are_a_scripts_own(tmp_path: Path) -> None:
    alone = audited(tmp_path / "alone", {"lora.yaml": TRL_KEYS}, select=("LOR002",)).findings
    own = audited(tmp_path / "own", {"lora.yaml": TRL_KEYS, "train.py": OWN_LORA}, select=("LOR002",)).findings
    assert alone
    assert not own


COPIES = """import torch
import torch.nn.functional as F
from transformers import AutoModelForCausalLM

MAX_LEN = 1024
torch.manual_seed(0)
model = AutoModelForCausalLM.from_pretrained("{model}").cuda()
loader = torch.utils.data.DataLoader(rows, batch_size={rows}, collate_fn=collate)
opt = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
for batch in loader:
    logits = model(**batch).logits
    loss = F.cross_entropy(logits[:, :-1].float().flatten(0, 1), batch["labels"][:, 1:].flatten())
    loss.backward()
    opt.step()
    opt.zero_grad()
"""


@pytest.mark.parametrize(
    ("model", "rows", "found"),
    [
        ("HuggingFaceTB/SmolLM2-360M", 8, False),  # 1.5 GiB
        ("HuggingFaceTB/SmolLM2-360M", 64, True),
        ("Qwen/Qwen2.5-0.5B", 8, True),
        ("mine/of-my-own", 8, True),
    ],
)
def test_a_small_copy_of_logits(tmp_path: Path, model: str, rows: int, found: bool) -> None:
    files = {"train.py": COPIES.format(model=model, rows=rows)}
    assert bool(audited(tmp_path, files, select=("MEM003",)).findings) is found
