"""Promise: what stands a step further off is read as what stands at hand: in a function, under a name, in another file."""

import json
from pathlib import Path

import pytest

from tests.audit.made_up import audited
from tests.audit.rules.scripts import in_loop, said

LOAD = "from datasets import load_dataset\nraw = load_dataset('acme/x', split='train')\n"
TRAIN = "\nTrainer(model, args, train_dataset={}, eval_dataset={}).train()\n"


@pytest.mark.parametrize(
    ("made", "trained", "tested", "found"),
    [
        ("dev = raw.train_test_split(0.1, seed=1)['test']", "raw", "dev", True),
        ("dev = raw.shuffle(seed=1).train_test_split(0.1)['test'].map(f)", "raw", "dev", True),
        ("dev = raw.train_test_split(test_size=99).pop('test')", "raw", "dev", True),
        ("dev = random_split(raw, [0.9, 0.1])[1]", "raw", "dev", True),
        ("dev = raw.train_test_split(0.1)['test']\nraw = raw.filter(lambda r: r not in dev)", "raw", "dev", False),
        ("raw = raw.train_test_split(0.1)['train']", "raw", "other", False),
        (
            "dev = raw.train_test_split(0.1, seed=1)['test']\nfit = raw.train_test_split(0.1, seed=1)['train']",
            "fit",
            "dev",
            False,
        ),
    ],
)
def test_a_part_that_is_taken_out_of_the_division(
    tmp_path: Path, made: str, trained: str, tested: str, found: bool
) -> None:
    assert bool(said("DAT004", tmp_path, f"{LOAD}{made}{TRAIN.format(trained, tested)}")) is found


COLLATE = """
import torch
from transformers import AutoModelForCausalLM
class Pad:
    def __call__(self, rows):
        width = max(len(p) + len(a) for p, a in rows)
        ids, mask, {0} = [], [], []
        for p, a in rows:
            gap = width - len(p) - len(a)
            ids.append(p + a + [self.pad_id] * gap)
            mask.append([1] * (width - gap) + [0] * gap)
            {1}
        return {{"input_ids": torch.tensor(ids), "attention_mask": torch.tensor(mask), "labels": {2}}}
"""


@pytest.mark.parametrize(
    ("name", "line", "given", "found"),
    [
        ("labels", "labels.append([-100] * len(p) + answers(a) + [self.pad_id] * gap)", "torch.tensor(labels)", True),
        ("out", "out.append(ids_of(p) + a_ids + [PAD] * gap)", "torch.LongTensor(out)", True),
        ("labels", "labels += [p_ids + a_ids + [self.pad_token_id] * gap]", "torch.tensor(labels)", True),
        ("gold", "row = target_ids + [self.pad_id] * gap\n            gold.append(row)", "torch.tensor(gold)", True),
        ("labels", "labels.append([-100] * len(p) + a_ids + [-100] * gap)", "torch.tensor(labels)", False),
        ("kinds", "kinds.append(p_ids + [self.pad_id] * gap)", "torch.tensor(other)", False),
        ("labels", "labels.append([0] * 3)", "torch.tensor(labels)", False),
    ],
)
def test_labels_that_are_gathered_row_by_row(tmp_path: Path, name: str, line: str, given: str, found: bool) -> None:
    assert bool(said("MSK052", tmp_path, COLLATE.format(name, line, given))) is found


@pytest.mark.parametrize(
    ("back", "kept", "found"),
    [
        ("(loss / accum).backward()", "total += loss", True),
        ("scaler.scale(loss / accum).backward()", "seen.append(loss)", True),
        ("accelerator.backward(loss)", "total += loss", True),
        ("(loss + 0.1 * aux_loss).backward()", "aux_total += aux_loss", True),
        ("(loss / accum).backward()", "total += loss.detach()", False),
        ("accelerator.backward(loss)", "total += loss.item()", False),
        ("(loss * weight).backward()", "total += weight", False),
        ("loss = loss / accum\n    accelerator.backward(loss)", "total += loss.item()", False),
        ("loss = loss + 0.1 * z\n    self.manual_backward(loss)", "seen.append(z)", False),
        ("(loss / accum).backward()", "seen.append(accum)", False),
    ],
)
def test_what_a_backward_pass_goes_through(tmp_path: Path, back: str, kept: str, found: bool) -> None:
    text = in_loop(back, kept).replace("    loss.backward()\n", "")
    assert bool(said("MEM053", tmp_path, text)) is found


TIMES = """
import time
import torch
model = torch.compile(model.cuda())
spent = []
for i in range(40):
    t = time.perf_counter()
    model(**batches[i]).loss.backward()
    optimizer.step()
    torch.cuda.synchronize()
    spent.append(time.perf_counter() - t)
{}
"""


@pytest.mark.parametrize(
    ("after", "found"),
    [
        ("print('best', n / min(spent), 'mean tokens/s', n * len(spent) / sum(spent))", True),
        ("n = min(64, rows)\nprint('tokens/s', n * len(spent) / sum(spent))", True),
        ("print('best', n / min(spent), 'mean tokens/s', n * len(spent[5:]) / sum(spent[5:]))", False),
        ("print('median tokens/s', n / statistics.median(spent), 'mean', n * len(spent) / sum(spent))", False),
    ],
)
def test_a_mean_beside_the_best(tmp_path: Path, after: str, found: bool) -> None:
    assert bool(said("MSR004", tmp_path, TIMES.format(after))) is found


SFT = "stage: sft\ndo_train: true\nfinetuning_type: lora\ndataset: a\nmodel_name_or_path: {}\ntemplate: {}\n"


@pytest.mark.parametrize(
    ("model", "template", "found"),
    [
        ("Qwen/Qwen2.5-Coder-32B-Instruct", "llama3", True),
        ("Qwen/Qwen2.5-7B-Instruct-AWQ", "mistral", True),
        ("unsloth/Meta-Llama-3.1-8B-Instruct-bnb-4bit", "qwen", True),
        ("Qwen/Qwen3-30B-A3B", "gemma", True),
        ("google/codegemma-7b-it", "llama3", True),
        ("Qwen/Qwen2.5-Coder-32B-Instruct", "qwen", False),
        ("meta-llama/CodeLlama-7b-Instruct-hf", "llama2", False),
        ("acme/Qwen2.5-Coder-7B-Instruct-llama3-chat", "llama3", False),
    ],
)
def test_templates_of_more_models(tmp_path: Path, model: str, template: str, found: bool) -> None:
    files = {"sft.yaml": SFT.format(model, template)}
    assert bool(audited(tmp_path, files, select=("CFG015",)).findings) is found


CONF = "defaults:\n  - opt: adam\n  - _self_\nseed: 1\n"
MAIN = """
import hydra
@hydra.main(version_base=None, config_path="conf", config_name="config")
def main(cfg):
    torch.manual_seed(cfg.seed)
    build(model, lr={}, decay=cfg.opt.decay)
def build(model, lr, decay):
    torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=decay)
main()
"""


@pytest.mark.parametrize(
    ("read", "found"),
    [
        ("cfg.opt.get('learning_rate', 1e-5)", True),
        ("cfg.opt.get('step_size', 1e-5)", True),
        ("cfg.opt.get('lr', 1e-5)", False),
        ("dict(cfg.opt.items())['lr']", False),
        ("cfg.opt['lr']", False),
    ],
)
def test_another_key_with_a_default(tmp_path: Path, read: str, found: bool) -> None:
    files = {"conf/config.yaml": CONF, "conf/opt/adam.yaml": "lr: 2.0e-4\ndecay: 0.1\n", "train.py": MAIN.format(read)}
    told = audited(tmp_path, files, select=("CFG017",)).findings
    assert any(one.place.file == "conf/opt/adam.yaml" for one in told) is found


OWN = """
import argparse
import torch
from accelerate import Accelerator
from transformers import AutoModelForCausalLM
ap = argparse.ArgumentParser()
ap.add_argument("--mixed_precision", default={0})
args = ap.parse_args()
accelerator = Accelerator(mixed_precision=args.mixed_precision)
small = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-0.5B"{1})
big = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-7B", torch_dtype=torch.bfloat16)
for p in big.parameters():
    p.requires_grad = False
optimizer = torch.optim.AdamW([p for p in small.parameters() if p.requires_grad], lr=1e-5)
for batch in loader:
    accelerator.backward(small(**batch).loss)
    optimizer.step()
    optimizer.zero_grad()
"""


@pytest.mark.parametrize(
    ("default", "dtype", "found"),
    [("'no'", "", True), ("'no'", ", torch_dtype=torch.bfloat16", False), ("None", "", False)],
)
def test_another_model_of_16_bits(tmp_path: Path, default: str, dtype: str, found: bool) -> None:
    run = "accelerate launch --mixed_precision bf16 --num_processes 2 train.py\n"
    assert bool(said("PRC002", tmp_path, OWN.format(default, dtype), run__sh=run)) is found


SPEED = """
import time
from transformers import AutoTokenizer
from trl import SFTConfig, SFTTrainer
CUTOFF = 2048
args = SFTConfig(output_dir="out", max_length={limit}, packing=False, per_device_train_batch_size=4)
trainer = SFTTrainer("Qwen/Qwen2.5-0.5B", args=args, train_dataset=rows)
out = trainer.train()
seen = {rows}
total_tokens = {product}
print(f"{{total_tokens / out.metrics['train_runtime']:.0f}} tokens/s")
"""


@pytest.mark.parametrize(
    ("rows", "product", "found"),
    [
        ("trainer.state.global_step * args.per_device_train_batch_size", "seen * args.max_length", True),
        ("trainer.state.global_step * 4", "args.max_length * seen", True),
        ("3 * len(rows)", "sum(map(len, ids))", False),
        ("width * depth", "seen * args.max_length", False),
    ],
)
def test_rows_under_another_name(tmp_path: Path, rows: str, product: str, found: bool) -> None:
    text = SPEED.format(limit="CUTOFF", rows=rows, product=product)
    assert bool(said("MSR001", tmp_path, text)) is found


AXOLOTL = "base_model: Qwen/Qwen2.5-0.5B\ndatasets:\n  - path: d.jsonl\n    type: alpaca\nadapter: {}\nlora_r: 8\n{}"


@pytest.mark.parametrize(
    ("adapter", "more", "found"),
    [
        ("lora", "tokens:\n  - <a>\n", True),
        ("qlora", "load_in_4bit: true\ntokens: ['<a>', '<b>']\nlora_modules_to_save: [lm_head]\n", True),
        ("lora", "tokens:\n  - <a>\nlora_modules_to_save:\n  - embed_tokens\n  - lm_head\n", False),
        ("lora", "special_tokens:\n  pad_token: <pad>\n", False),
        ("", "tokens:\n  - <a>\n", False),
    ],
)
def test_tokens_that_axolotl_adds(tmp_path: Path, adapter: str, more: str, found: bool) -> None:
    files = {"run.yml": AXOLOTL.format(adapter, more)}
    assert bool(audited(tmp_path, files, select=("LOR007",)).findings) is found


ADDED = """
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM
from words import widen
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-0.5B")
widen(model, tokenizer)
model = get_peft_model(model, LoraConfig(r=8, target_modules={0}{1}))
"""
WIDEN = "def widen(model, tokenizer):\n    tokenizer.{}\n    model.resize_token_embeddings(len(tokenizer))\n"
MORE = "add_special_tokens({'additional_special_tokens': ['<a>']})"


@pytest.mark.parametrize(
    ("adds", "targets", "more", "found"),
    [
        ("add_tokens(['<a>'])", "['q_proj']", "", True),
        (MORE, "'all-linear'", "", True),
        (MORE, "'all-linear'", ", modules_to_save=['embed_tokens', 'lm_head']", False),
        ("add_tokens(['<a>'])", "['q_proj', 'embed_tokens']", "", False),
        ("add_tokens(['<a>'])", "['q_proj']", ", trainable_token_indices=new", False),
        ("add_special_tokens({'pad_token': '<pad>'})", "['q_proj']", "", False),
    ],
)
def test_tokens_that_a_helper_adds(tmp_path: Path, adds: str, targets: str, more: str, found: bool) -> None:
    text = ADDED.format(targets, more)
    assert bool(said("LOR007", tmp_path, text, words__py=WIDEN.format(adds))) is found


EXPORT = (
    "model_name_or_path: Qwen/Qwen2.5-7B\nadapter_name_or_path: out/lora\ntemplate: qwen\nfinetuning_type: lora\n{}"
)


@pytest.mark.parametrize(
    ("keys", "run", "found"),
    [
        ("quantization_bit: 4\nexport_dir: m\n", "llamafactory-cli export merge.yaml\n", True),
        ("export_dir: m\n", "llamafactory-cli export merge.yaml --export_quantization_bit 4\n", True),
        ("quantization_bit: 8\nexport_dir: m\n", "", True),
        ("export_dir: m\n", "llamafactory-cli export merge.yaml\n", False),
        ("quantization_bit: 4\n", "llamafactory-cli chat merge.yaml\n", False),
    ],
)
def test_merged_by_llama_factory(tmp_path: Path, keys: str, run: str, found: bool) -> None:
    files = {"merge.yaml": EXPORT.format(keys), "run.sh": f"#!/bin/bash\n{run}"}
    assert bool(audited(tmp_path, files, select=("LOR008",)).findings) is found


DPO = """
from datasets import load_dataset
from trl import DPOConfig, DPOTrainer
rows = load_dataset("json", data_files="votes.jsonl", split="train")
{}
DPOTrainer("Qwen/Qwen2.5-0.5B", args=DPOConfig(output_dir="out"), train_dataset=rows).train()
"""
VOTES = [{"ask": "Hi", "up": "Hello", "down": "No"}, {"ask": "Bye", "up": "Bye", "down": "Bye"}]
AS = "rows = rows.map(lambda r: {'prompt': r['ask'], 'chosen': r['up'], 'rejected': r['down']})"


@pytest.mark.parametrize(
    ("line", "found"),
    [
        (AS, True),
        ("rows = rows.rename_columns({'ask': 'prompt', 'up': 'chosen', 'down': 'rejected'})", True),
        (AS.replace("r['up']", "[turn(r.get('up'))]").replace("r['down']", "[turn(r.get('down'))]"), True),
        (f"rows = rows.filter(lambda r: r['up'].strip() != r['down'].strip())\n{AS}", False),
        (f"{AS}.filter(lambda r: r['chosen'] != r['rejected'])", False),
        (AS.replace("r['up']", "better(r['up'])"), False),
        (AS.replace("r['down']", "r['worst']"), False),
    ],
)
def test_pairs_of_a_file_that_is_named(tmp_path: Path, line: str, found: bool) -> None:
    votes = "".join(f"{json.dumps(one)}\n" for one in VOTES)
    told = said("DPO004", tmp_path, DPO.format(line), votes__jsonl=votes)
    assert bool(told) is found
    if found:
        assert ("votes.jsonl", 2) in [(one.file, one.line) for one in told[0].also]


NOTES = """
from trl import SFTConfig, SFTTrainer
args = SFTConfig(output_dir="out", max_length={}, packing={})
SFTTrainer("Qwen/Qwen2.5-0.5B", args=args, train_dataset={}).train()
"""


@pytest.mark.parametrize(
    ("length", "packs", "rows", "told", "found"),
    [
        (512, False, "rows", "Tickets with their threads have 800 to 2,000 tokens.", True),
        (1024, False, "rows", "Case files: 1,200-4,000 tokens, the verdict last.", True),
        (2048, False, "rows", "Tickets with their threads have 800 to 2,000 tokens.", False),
        (512, True, "rows", "Tickets with their threads have 800 to 2,000 tokens.", False),
        (512, False, "rows.filter(short)", "Tickets have 800 to 2,000 tokens.", False),
        (512, False, "rows", "Evaluation prompts have 800 to 2,000 tokens.", False),
        (512, False, "rows", "Tickets of 800 to 2,000 tokens are split into pieces.", False),
        (512, False, "rows", "Tickets have 100 to 2,000 tokens.", False),
    ],
)
def test_rows_that_are_told_longer_than_the_limit(
    tmp_path: Path, length: int, packs: bool, rows: str, told: str, found: bool
) -> None:
    files = {"train.py": NOTES.format(length, packs, rows), "README.md": f"# Notes\n\n{told}\n"}
    assert bool(audited(tmp_path, files, select=("DAT002",)).findings) is found


LOSSES = """
import torch.nn as nn
import torch.nn.functional as F
def plain(scores, gold):
    {0}
def soft(student, teacher, gold):
    keep = gold[:, 1:] != -100
    return F.kl_div(student[:, :-1][keep].log_softmax(-1), teacher[:, :-1][keep].softmax(-1))
def both(student, teacher, gold, alpha=0.5):
    return alpha * plain({1}) + soft(student, teacher, gold)
"""
LOOP = """
from transformers import AutoModelForCausalLM
from losses import both
student = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-0.5B").cuda()
for batch in loader:
    gold = batch.pop("labels")
    logits = student(**batch).logits
    {}
    loss.backward()
    optimizer.step()
"""
FLAT = "return F.cross_entropy(scores.float().view(-1, scores.size(-1)), gold.view(-1))"
CALL = "loss = both(logits, teacher(**batch).logits, gold)"


@pytest.mark.parametrize(
    ("loss", "handed", "call", "found"),
    [
        (FLAT, "student, gold", CALL, True),
        (FLAT, "gold=gold, scores=student", CALL, True),
        (
            "ce = nn.CrossEntropyLoss()\n    return ce(scores.flatten(0, 1), gold.flatten())",
            "student, gold",
            CALL,
            True,
        ),
        (FLAT, "student[:, :-1], gold[:, 1:]", CALL, False),
        (f"scores, gold = scores[:, :-1], gold[:, 1:]\n    {FLAT}", "student, gold", CALL, False),
        (FLAT, "student, gold", "loss = both(logits[:, :-1], teacher(**batch).logits, gold[:, 1:])", False),
        (FLAT, "student, gold", "logits, gold = moved(logits, gold)\n    loss = both(logits, logits, gold)", False),
    ],
)
def test_a_loss_in_another_file(tmp_path: Path, loss: str, handed: str, call: str, found: bool) -> None:
    told = said("MSK051", tmp_path, LOOP.format(call), losses__py=LOSSES.format(loss, handed))
    assert [one.place.file for one in told] == ["losses.py"] * found


def test_rows_that_a_collator_has_moved(tmp_path: Path) -> None:
    rows = "def collate(rows):\n    ids = pad(rows)\n    return {'input_ids': ids[:, :-1], 'labels': ids[:, 1:]}\n"
    losses = LOSSES.format(FLAT, "student, gold")
    assert not said("MSK051", tmp_path, LOOP.format(CALL), losses__py=losses, rows__py=rows)


JOB = "#!/bin/bash\n#SBATCH --nodes=1\n#SBATCH --gres=gpu:a100:{}\n"
JOB += "accelerate launch --multi_gpu --num_processes {} -m axolotl.cli.train run.yml\n"


@pytest.mark.parametrize(("asked", "starts", "found"), [(4, 8, False), (8, 8, True), (4, 4, False)])
def test_gpus_that_the_job_file_asks_for(tmp_path: Path, asked: int, starts: int, found: bool) -> None:
    """The text and the job file agree: what the launcher starts beyond is said once."""
    files = {
        "job.sbatch": JOB.format(asked, starts),
        "run.yml": AXOLOTL.format("lora", ""),
        "README.md": "# Run\n\nLoRA on Qwen, one node with 4 x A100.\n",
    }
    assert bool(audited(tmp_path, files, select=("CFG011",)).findings) is found
