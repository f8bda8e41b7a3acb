"""Promise: a fault is seen in the several ways in which repositories write it, and the nearest right way is not said."""

from pathlib import Path

import pytest

from tests.audit.made_up import audited

ACCUMULATES = """import argparse
from accelerate import Accelerator
parser = argparse.ArgumentParser()
parser.add_argument("--gradient_accumulation_steps", type=int, default=1)
args = parser.parse_args()
accelerator = Accelerator({})
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
total = len(loader) // args.gradient_accumulation_steps
for batch in loader:
    with accelerator.accumulate(model):
        accelerator.backward(model(**batch).loss)
        optimizer.step()
        optimizer.zero_grad()
"""
TOLD = "gradient_accumulation_steps=args.gradient_accumulation_steps"
BY_EIGHT = "accelerate launch {}train.py --gradient_accumulation_steps 8\n"
OF_A_FILE = """from accelerate import Accelerator
from omegaconf import OmegaConf
cfg = OmegaConf.load("conf.yaml")
accelerator = Accelerator(mixed_precision="bf16")
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
steps = len(loader) // cfg.train.grad_accum_steps
for batch in loader:
    with accelerator.accumulate(model):
        accelerator.backward(model(**batch).loss)
        optimizer.step()
        optimizer.zero_grad()
"""
TRL = """from transformers import AutoModelForCausalLM
from trl import ModelConfig, SFTConfig, SFTTrainer, ScriptArguments, TrlParser
parser = TrlParser((ScriptArguments, SFTConfig, ModelConfig))
script_args, training_args, model_args = parser.parse_args_and_config()
model = AutoModelForCausalLM.from_pretrained(model_args.model_name_or_path, {})
trainer = SFTTrainer(model=model, args=training_args, train_dataset=rows)
trainer.train()
"""
FLASH = "model_name_or_path: Qwen/Qwen2.5-0.5B\ndtype: bfloat16\nattn_implementation: flash_attention_2\n"
RUN = "accelerate launch train.py --config sft.yaml\n"
GIVEN_ON = "dtype=model_args.dtype, attn_implementation=model_args.attn_implementation"
LLAMA_FACTORY = (
    "stage: sft\nmodel_name_or_path: Qwen/Qwen2.5-7B\nfinetuning_type: lora\ndataset: alpaca_en\ntemplate: qwen\n"
    "output_dir: out\nbf16: true\nwarmup_ratio: 0.1\nlr_scheduler_type: {}\n"
)
MASKS = """IGNORE_INDEX = -100
def mask_prompt(labels, marker):
    start = find(labels, marker)
    if start == -1:
        {}
    return [IGNORE_INDEX] * start + labels[start:]
"""
OF_AN_OPTION = """IGNORE_INDEX = -100
def mask_prompt(labels, prompt_length):
    if prompt_length is None:
        return labels
    return [IGNORE_INDEX] * prompt_length + labels[prompt_length:]
"""
SWEEP = """for bs in (1, 4, 8):
    metrics = make_trainer(bs, max_steps=30).train().metrics
    print(f"batch size {{bs}}: {{metrics['{}']:.2f}} {}")
"""
TIMED = """import time
import torch
step = 0
t0 = time.perf_counter()
while step < 1000:
    for micro in range(8):
        loss = model(next(rows).cuda()).loss / 8
        loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    step += 1
    {}
    if step % 50 == 0:
        print("tokens/s", step * 4096 / (time.perf_counter() - t0))
"""
AGAIN = "if step == 20:\n        torch.cuda.synchronize()\n        t0 = time.perf_counter()"
HYDRA = """import hydra
from transformers import Trainer, TrainingArguments
def rows(cfg):
    return load(cfg.path, cfg["split"], cfg.get("limit"))
def arguments(cfg):
    t = cfg.trainer
    return TrainingArguments(output_dir=cfg.out, learning_rate=t.lr{})
@hydra.main(version_base=None, config_path="conf", config_name="config")
def main(cfg):
    wandb.init(config=OmegaConf.to_container(cfg))
    Trainer(model, args=arguments(cfg), train_dataset=rows(cfg.data)).train()
main()
"""
CONF = "out: o\ntrainer:\n  lr: 1.0e-5\n  precision: bf16\ndata:\n  path: a.jsonl\n  split: train\n  limit: 10\n"
LOOP = """import torch
from transformers import AutoModelForCausalLM
{imports}
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-0.5B", dtype=torch.float32).cuda()
torch.manual_seed(0)
optimizer = {made}
for step, batch in enumerate(loader):
    with torch.autocast("{device}", dtype=torch.bfloat16):
        loss = model(**batch).loss
    {loss}.backward()
    if {often}:
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
"""
PLAIN = {"imports": "", "made": "torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)", "device": "cuda"}
PLAIN |= {"loss": "loss", "often": "(step + 1) % 1 == 0"}


def loop(**changes: str) -> dict[str, str]:
    return {"train.py": LOOP.format(**PLAIN | changes)}


INNER = """import torch
model = model.cuda()
for step in range(1000):
    for micro in range({}):
        loss = model(next(rows)).loss
        {}.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
"""
EXPERTS = """import torch
class Experts(torch.nn.Module):
    def forward(self, x):
        chosen = self.gate(x).argmax(-1)
        out = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            {}
        return out
model = Experts().cuda()
for batch in loader:
    model(batch.cuda()).mean().backward()
    optimizer.step()
"""
CHECKPOINTED = """import torch
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint
class Model(torch.nn.Module):
    def forward(self, x):
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant={})
        return x
model = DistributedDataParallel(Model().cuda())
for batch in loader:
    model(batch.cuda()).mean().backward()
    optimizer.step()
"""
AXOLOTL = (
    "base_model: Qwen/Qwen2.5-7B\ndatasets:\n  - path: a.jsonl\n    type: alpaca\nsequence_len: 2048\noutput_dir: o\n"
)
GENERATES = """import torch
from transformers import AutoModelForCausalLM
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-7B", dtype=torch.bfloat16){}
for row in rows:
    out = model.generate(**row, max_new_tokens=100)
"""
TYPER = "import typer\ndef main(lr: float = 1e-5, epochs: int = 3{}):\n    print(lr, epochs)\ntyper.run(main)\n"
APP = "import typer\napp = typer.Typer()\n@app.command()\ndef main(lr: float, epochs: int = 3):\n    print(lr)\napp()\n"
TYRO = """from dataclasses import dataclass
import tyro
@dataclass
class Arguments:
    lr: float = 1e-5
    epochs: int = 3
    {}
arguments = tyro.cli(Arguments)
print(arguments.lr)
"""
CLICK = """import click
@click.command({})
@click.option("--lr", type=float)
@click.option("--epochs", "-e", type=int)
def main(lr, epochs):
    print(lr, epochs)
main()
"""
GIVEN = "python train.py --lr 1e-5 --epochs 3\n"
MISSPELT = "python train.py --lr 1e-5 --num-epochs 3\n"
IN_TURN = """IGNORE = -100
def build(ids, response):
    labels = list(ids)
    at = find_last(ids, response)
    if at >= 0:
        for number in range(at + len(response)):
            labels[number] = IGNORE
    {}
    return {{"input_ids": ids, "labels": labels}}
"""
SPLIT = """def build(text, tok):
    ids = tok(text)["input_ids"]
    labels = ids[:]
    parts = text.split("### Response:")
    if len(parts) == 2:
        prompt = len(tok(parts[0] + "### Response:")["input_ids"])
        labels[:prompt] = [-100] * prompt
    {}
    return dict(input_ids=ids, labels=labels)
"""
ON_RESPONSES = """try:
    from unsloth.chat_templates import train_on_responses_only
    trainer = train_on_responses_only(trainer, instruction_part="a", response_part="b")
except Exception as error:
    {}
trainer.train()
"""

CASES = [
    ("OPT054", {"train.py": ACCUMULATES.format(""), "run.sh": BY_EIGHT.format("")}, "was not told"),
    ("OPT054", {"train.py": ACCUMULATES.format(TOLD), "run.sh": BY_EIGHT.format("")}, ""),
    ("OPT054", {"train.py": ACCUMULATES.format(""), "run.sh": "accelerate launch train.py\n"}, ""),
    (
        "OPT054",
        {"train.py": ACCUMULATES.format(""), "run.sh": BY_EIGHT.format("--gradient_accumulation_steps 8 ")},
        "",
    ),
    ("OPT054", {"train.py": OF_A_FILE, "conf.yaml": "train:\n  grad_accum_steps: 16\n"}, "was not told"),
    ("OPT054", {"train.py": OF_A_FILE, "conf.yaml": "train:\n  grad_accum_steps: 1\n"}, ""),
    ("CFG005", {"train.py": TRL.format("dtype=model_args.dtype"), "sft.yaml": FLASH, "run.sh": RUN}, "ModelConfig"),
    ("CFG005", {"train.py": TRL.format(GIVEN_ON), "sft.yaml": FLASH, "run.sh": RUN}, ""),
    ("CFG005", {"train.py": TRL.format("**load_options(model_args)"), "sft.yaml": FLASH, "run.sh": RUN}, ""),
    ("CFG005", {"sft.yaml": LLAMA_FACTORY.format("constant")}, "no warm-up"),
    ("CFG005", {"sft.yaml": LLAMA_FACTORY.format("constant_with_warmup")}, ""),
    ("MSK050", {"data.py": MASKS.format("return labels")}, "does not find the answer"),
    ("MSK050", {"data.py": MASKS.format("return list(labels)")}, "does not find the answer"),
    ("MSK050", {"data.py": MASKS.format("return [IGNORE_INDEX] * len(labels)")}, ""),
    ("MSK050", {"data.py": OF_AN_OPTION}, ""),
    ("MSR005", {"sweep.py": SWEEP.format("train_steps_per_second", "it/s")}, "smallest wins"),
    ("MSR005", {"sweep.py": SWEEP.format("train_samples_per_second", "samples/s")}, ""),
    ("MSR005", {"sweep.py": SWEEP.replace("bs in (1, 4, 8)", "bs in batches").format("steps", "it/s")}, ""),
    ("MSR004", {"train.py": TIMED.format("pass")}, "before the first step"),
    ("MSR004", {"train.py": TIMED.format(AGAIN)}, ""),
    ("OPT051", loop(often="(step + 1) % 8 == 0"), "`8` micro-batches"),
    ("OPT051", loop(often="step % UPDATE_FREQ == UPDATE_FREQ - 1"), "`UPDATE_FREQ` micro-batches"),
    ("OPT051", loop(often="not (step + 1) % update_freq"), "`update_freq` micro-batches"),
    ("OPT051", loop(often="(step + 1) % 8 == 0", loss="(loss / 8)"), ""),
    ("OPT051", loop(often="True"), ""),
    ("OPT051", {"train.py": INNER.format("n_micro", "loss")}, "`n_micro` micro-batches"),
    ("OPT051", {"train.py": INNER.format("n_micro", "(loss / n_micro)")}, ""),
    ("OPT001", loop(imports="from transformers import AdamW", made="AdamW(model.parameters(), lr=1e-5)"), "one by one"),
    ("OPT001", loop(), ""),
    ("PRC006", loop(device="cpu"), "float32"),
    ("PRC006", loop(device="cuda"), ""),
    (
        "HST002",
        {"m.py": EXPERTS.format("rows = (chosen == number).nonzero()\n            out[rows] = expert(x[rows])")},
        "reads",
    ),
    (
        "HST002",
        {"m.py": EXPERTS.format("(rows,) = torch.where(chosen == number)\n            out[rows] = expert(x[rows])")},
        "reads",
    ),
    ("HST002", {"m.py": EXPERTS.format("out = torch.where((chosen == number)[..., None], expert(x), out)")}, ""),
    ("MEM002", {"train.py": CHECKPOINTED.format("True")}, "old implementation"),
    ("MEM002", {"train.py": CHECKPOINTED.format("False")}, ""),
    ("HST006", {"a.yaml": AXOLOTL, "run.sh": "rm -rf last_run_prepared\naxolotl train a.yaml\n"}, "last_run_prepared"),
    (
        "HST006",
        {"a.yaml": AXOLOTL + "dataset_prepared_path: prep\n", "run.sh": "rm -rf ./prep/\naxolotl train a.yaml\n"},
        "prep",
    ),
    ("HST006", {"a.yaml": AXOLOTL, "run.sh": "rm -rf outputs/old\naxolotl train a.yaml\n"}, ""),
    ("HST004", {"generate.py": GENERATES.format("")}, "nothing moves it"),
    ("HST004", {"generate.py": GENERATES.format(".to('cuda')")}, ""),
    ("CFG008", {"train.py": TYPER.format(""), "run.sh": MISSPELT}, "num"),
    ("CFG008", {"train.py": TYPER.format(""), "run.sh": GIVEN}, ""),
    ("CFG008", {"train.py": TYPER.format(", **others"), "run.sh": MISSPELT}, ""),
    ("CFG008", {"train.py": APP, "run.sh": MISSPELT}, "num"),
    ("CFG008", {"train.py": APP, "run.sh": GIVEN}, ""),
    ("CFG008", {"train.py": TYRO.format("seed: int = 1"), "run.sh": MISSPELT}, "num"),
    ("CFG008", {"train.py": TYRO.format("seed: int = 1"), "run.sh": GIVEN}, ""),
    ("CFG008", {"train.py": TYRO.format("more: Schedule = None"), "run.sh": MISSPELT}, ""),
    ("CFG008", {"train.py": CLICK.format(""), "run.sh": MISSPELT}, "num"),
    ("CFG008", {"train.py": CLICK.format(""), "run.sh": GIVEN}, ""),
    ("CFG008", {"train.py": CLICK.format("context_settings=LOOSE"), "run.sh": MISSPELT}, ""),
    ("MSK050", {"data.py": IN_TURN.format("pass")}, "does not find the answer"),
    ("MSK050", {"data.py": IN_TURN.format("if at < 0:\n        raise ValueError(ids)")}, ""),
    ("MSK050", {"data.py": SPLIT.format("")}, "does not find the answer"),
    ("MSK050", {"data.py": SPLIT.format("else:\n        labels = [-100] * len(ids)")}, ""),
    ("MSK050", {"train.py": ON_RESPONSES.format("print(error)")}, "goes on without it"),
    ("MSK050", {"train.py": ON_RESPONSES.format("raise RuntimeError from error")}, ""),
    ("CFG017", {"train.py": HYDRA.format(""), "conf/config.yaml": CONF}, "precision"),
    ("CFG017", {"train.py": HYDRA.format(", bf16=t.precision == 'bf16'"), "conf/config.yaml": CONF}, ""),
    ("CFG017", {"train.py": HYDRA.replace("t = cfg.t", "t = wrapped(cfg).t"), "conf/config.yaml": CONF}, ""),
]


@pytest.mark.parametrize(("code", "files", "says"), CASES)
def test_a_way_of_writing(tmp_path: Path, code: str, files: dict[str, str], says: str) -> None:
    found = [one.message for one in audited(tmp_path, files).findings if one.code == code]
    assert [says in one for one in found] == [True] if says else found == [], found
