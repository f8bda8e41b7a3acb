"""Promise: beginnings, ends, seeds, padding, claims and caches are followed to where they are told; what is right there is
left alone."""

from pathlib import Path

import pytest

from tests.audit.made_up import audited

HF = "from transformers import AutoModelForCausalLM, AutoTokenizer, DataCollatorForLanguageModeling\n"
HF += "from transformers import Trainer, TrainingArguments\n"
LLAMA, QWEN = "meta-llama/Llama-3.2-1B", "Qwen/Qwen2.5-0.5B"
TRAINED = """model = AutoModelForCausalLM.from_pretrained("{model}")
Trainer(model, TrainingArguments("out"), train_dataset=rows, data_collator={collator}).train()
"""
WHOLE = "DataCollatorForLanguageModeling(tok, mlm=False)"
STREAM = HF + 'tok = AutoTokenizer.from_pretrained("{model}")\n\n\ndef ids(text):\n    {body}\n\n\n' + TRAINED.replace(
    "{collator}", "None"
)  # fmt: skip
FORMAT = """import yaml
from transformers import AutoModelForCausalLM, AutoTokenizer
C = yaml.safe_load(open("c.yaml"))
tok = AutoTokenizer.from_pretrained(C["model"])
model = AutoModelForCausalLM.from_pretrained(C["model"])


def encode(row):
    return tok(C["prompt"].format(q=row["q"])).input_ids


for batch in map(encode, rows):
    loss = model(**batch).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""
ROWS = '{{"text": "{0}[INST] a [/INST] b </s>"}}\n{{"text": "{0}[INST] c [/INST] d </s>"}}\n'
TRL = "model_name_or_path: {}\ndatasets:\n  - path: json\n    data_files: rows.jsonl\ndataset_text_field: text\n"
TRL += "learning_rate: 1.0e-4\noutput_dir: out\n"
RUN = "trl sft --config sft.yaml\n"
PREP = """import json
from transformers import AutoTokenizer
tok = AutoTokenizer.from_pretrained("meta-llama/Meta-Llama-3-8B-Instruct")
for line in source:
    text = tok.apply_chat_template(json.loads(line)["dialog"], tokenize=False)
    out.write(json.dumps({"text": text}))
"""
AXOLOTL = "base_model: meta-llama/Meta-Llama-3-8B-Instruct\ndatasets:\n  - path: rows.jsonl\n    type: {}\n"
AXOLOTL += "sequence_len: 2048\nmicro_batch_size: 2\noutput_dir: out\n"


def stream(body: str, model: str = LLAMA) -> str:
    return STREAM.format(model=model, body=body)


@pytest.mark.parametrize(
    "files",
    [
        {"train.py": stream("return [tok.bos_token_id] + tok(text).input_ids + [tok.eos_token_id]")},
        {"train.py": stream('made = tok(text)["input_ids"]\n    made.insert(0, tok.bos_token_id)\n    return made')},
        {"train.py": FORMAT, "c.yaml": 'model: google/gemma-2-2b-it\nprompt: "<bos><start_of_turn>user\\n{q}"\n'},
        {"sft.yaml": TRL.format("meta-llama/Llama-2-7b-hf"), "rows.jsonl": ROWS.format("<s>"), "run.sh": RUN},
        {"prep.py": PREP, "a.yaml": AXOLOTL.format("completion"), "run.sh": "axolotl train a.yaml\n"},
    ],
)
def test_two_beginnings(tmp_path: Path, files: dict[str, str]) -> None:
    assert len(audited(tmp_path, files, select=("MSK053",)).findings) == 1


@pytest.mark.parametrize(
    "files",
    [
        {"train.py": stream("return [tok.bos_token_id] + tok(text, add_special_tokens=False).input_ids")},
        {"train.py": stream("return [tok.bos_token_id] + tok(text).input_ids", QWEN)},
        {"train.py": FORMAT, "c.yaml": 'model: google/gemma-2-2b-it\nprompt: "<start_of_turn>user\\n{q}"\n'},
        {"sft.yaml": TRL.format("meta-llama/Llama-2-7b-hf"), "rows.jsonl": ROWS.format(""), "run.sh": RUN},
        {"sft.yaml": TRL.format(QWEN), "rows.jsonl": ROWS.format("<s>"), "run.sh": RUN},
        {"prep.py": PREP, "a.yaml": AXOLOTL.format("chat_template"), "run.sh": "axolotl train a.yaml\n"},
    ],
)
def test_one_beginning(tmp_path: Path, files: dict[str, str]) -> None:
    assert not audited(tmp_path, files, select=("MSK053",)).findings


PLAIN = "{%- for m in messages %}\n{%- if m.role == 'user' %}\n{{- 'Q: ' + m.content }}\n{%- else %}"
PLAIN += "\n{{- 'A: ' + m.content XX}}\n{%- endif %}\n{%- endfor %}\n"
TEMPLATE = f"model_name_or_path: {QWEN}\nchat_template_path: t/plain.jinja\ndataset_name: a/b\noutput_dir: out\n"
OLD = """from transformers import AutoTokenizer
from trl import SFTConfig, SFTTrainer


def render(row):
    return {{"text": f"Complaint:\\n{{row['complaint']}}\\n\\n{last}:\\n{{row['letter']}}"}}


SFTTrainer("tiiuae/falcon-rw-1b", args=SFTConfig("out", dataset_text_field="text"), train_dataset=rows.map(render)).train()
"""
SWITCH = HF + """import os
tok = AutoTokenizer.from_pretrained("meta-llama/Llama-2-7b-hf", add_eos_token=os.environ.get("ADD_EOS", "1") == "1")
rows = rows.map(lambda r: tok(f"### Question\\n{r['q']}\\n### Answer\\n{r['answer']}"))
""" + TRAINED.format(model="meta-llama/Llama-2-7b-hf", collator="None")  # fmt: skip


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"sft.yaml": TEMPLATE, "t/plain.jinja": PLAIN.replace("XX", "+ '\\n' "), "run.sh": RUN}, 1),
        ({"sft.yaml": TEMPLATE, "t/plain.jinja": PLAIN.replace("XX", "+ eos_token "), "run.sh": RUN}, 0),
        ({"sft.yaml": TEMPLATE, "t/plain.jinja": PLAIN.replace("XX", "+ '<|im_end|>' "), "run.sh": RUN}, 0),
        ({"train.py": OLD.format(last="Letter"), "requirements.txt": "trl==0.9.6\n"}, 1),
        ({"train.py": OLD.format(last="Letter"), "requirements.txt": "trl==0.24.0\n"}, 0),
        ({"train.py": OLD.format(last="Text"), "requirements.txt": "trl==0.9.6\n"}, 0),
        ({"train.py": SWITCH, "job.sbatch": "#!/bin/bash\nexport ADD_EOS=0\nsrun python train.py\n"}, 1),
        ({"train.py": SWITCH, "job.sbatch": "#!/bin/bash\nexport ADD_EOS=1\nsrun python train.py\n"}, 0),
        ({"train.py": SWITCH, "job.sbatch": "#!/bin/bash\nsrun python train.py\n"}, 0),
    ],
)
def test_answers_end_where_it_is_told(tmp_path: Path, files: dict[str, str], said: int) -> None:
    assert len(audited(tmp_path, files, select=("MSK056",)).findings) == said


LIT = """import lightning as L
from torch.utils.data import DataLoader, random_split
{seed}
train, val = random_split(blocks, [0.9, 0.1])
L.Trainer(max_epochs=1).fit(Model(), DataLoader(train, shuffle=True))
"""
HYDRA = """import hydra
from torch.utils.data import DataLoader
from transformers import set_seed


@hydra.main(config_path="conf", config_name="train")
def main(cfg):
    if cfg.seed is not None:
        set_seed(cfg.seed)
    loader = DataLoader(rows, cfg.batch, shuffle=True)
    for batch in loader:
        loss = model(**batch).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


main()
"""
LORA = HF + """from peft import LoraConfig, get_peft_model
{seed}
model = get_peft_model(AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-0.5B"), LoraConfig(r=8))
Trainer(model, TrainingArguments("out", seed=7), train_dataset=rows).train()
"""  # fmt: skip
PROMISE = {"README.md": "Two runs of `python train.py` give the same adapter.\n"}


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"train.py": LIT.format(seed="")}, 1),
        ({"train.py": LIT.format(seed="L.seed_everything(3)")}, 0),
        ({"train.py": HYDRA, "conf/train.yaml": "seed: null\nbatch: 8\n"}, 1),
        ({"train.py": HYDRA, "conf/train.yaml": "seed: 3\nbatch: 8\n"}, 0),
        ({"train.py": LORA.format(seed=""), **PROMISE}, 1),
        ({"train.py": LORA.format(seed="")}, 0),
        ({"train.py": LORA.format(seed="from transformers import set_seed\nset_seed(7)"), **PROMISE}, 0),
    ],
)
def test_seeds(tmp_path: Path, files: dict[str, str], said: int) -> None:
    assert len(audited(tmp_path, files, select=("MSR003",)).findings) == said


PADDED = HF + """import settings as S
tok = AutoTokenizer.from_pretrained("{model}")
tok.pad_token = S.PAD
rows = rows.map(lambda r: tok(r["text"] + tok.eos_token))
""" + TRAINED.format(model="{model}", collator=WHOLE)  # fmt: skip


@pytest.mark.parametrize(
    ("model", "pad", "said"),
    [
        (LLAMA, "<|end_of_text|>", 1),
        (LLAMA, "<|finetune_right_pad_id|>", 0),
        ("meta-llama/Llama-3.2-1B-Instruct", "<|end_of_text|>", 0),
        ("EleutherAI/pythia-1b", "<|endoftext|>", 1),
        ("EleutherAI/pythia-1b", "<|padding|>", 0),
    ],
)
def test_padding_that_is_the_end_by_its_text(tmp_path: Path, model: str, pad: str, said: int) -> None:
    files = {"train.py": PADDED.format(model=model), "settings.py": f'PAD = "{pad}"\n'}
    assert len(audited(tmp_path, files, select=("MSK003",)).findings) == said


BATCHES = """import torch


def pad_batch(rows, pad=0):
    ids = torch.full((len(rows), max(map(len, rows))), pad)
    for i, row in enumerate(rows):
        ids[i, : len(row)] = torch.tensor(row)
    return ids[:, :-1], ids[:, 1:]
"""
LOOP = """from torch import nn
from batches import pad_batch

criterion = nn.CrossEntropyLoss({})
for rows in data:
    x, y = pad_batch(rows)
    loss = criterion(model(x).flatten(0, 1), y.flatten())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""
VISION = """from transformers import AutoProcessor
processor = AutoProcessor.from_pretrained("Qwen/Qwen2-VL-2B-Instruct")
skip = processor.tokenizer.convert_tokens_to_ids(["<|vision_start|>", "<|image_pad|>"])


def collate(rows):
    batch = processor(text=texts, images=images, padding=True, return_tensors="pt")
    labels = batch["input_ids"].clone()
    for token in skip:
        labels[labels == token] = -100{more}
    batch["labels"] = labels
    return batch
"""


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"train.py": LOOP.format(""), "batches.py": BATCHES}, 1),
        ({"train.py": LOOP.format("ignore_index=0"), "batches.py": BATCHES}, 0),
        ({"train.py": VISION.format(more="")}, 1),
        ({"train.py": VISION.format(more="\n    labels[labels == processor.tokenizer.pad_token_id] = -100")}, 0),
    ],
)
def test_loss_on_padding(tmp_path: Path, files: dict[str, str], said: int) -> None:
    assert len(audited(tmp_path, files, select=("MSK052",)).findings) == said


COLLATED = HF + f'tok = AutoTokenizer.from_pretrained("{QWEN}")\nrows = rows.map(lambda r: tok(r["a"] + r["b"]))\n'
COLLATED += TRAINED.format(model=QWEN, collator=WHOLE)
MASKED = COLLATED.replace(WHOLE, "None") + "labels = [-100] * len(prompt) + ids[len(prompt):]\n"


@pytest.mark.parametrize(
    ("script", "text", "said"),
    [
        (COLLATED, "* the loss is taken on the review only; the timeline is context\n", 1),
        (COLLATED, "* the loss is printed on rank 0 only\n", 0),
        (COLLATED, "* the loss falls on validation only at the end\n", 0),
        (MASKED, "The loss runs over **every token of the call**, on both sides.\n", 1),
        (MASKED, "The loss is the mean over all tokens of the answer.\n", 0),
        (COLLATED, "The loss runs over every token of the call.\n", 0),
    ],
)
def test_claims_of_the_loss(tmp_path: Path, script: str, text: str, said: int) -> None:
    files = {"train.py": script, "README.md": text}
    assert len(audited(tmp_path, files, select=("MSK001",)).findings) == said


SFT = """from datasets import load_dataset
from trl import SFTConfig, SFTTrainer
rows = load_dataset("parquet", data_files="/data/*.parquet", split="train")
SFTTrainer("Qwen/Qwen2.5-0.5B", SFTConfig("out"), train_dataset=rows).train()
"""
ARRAY = "#!/bin/bash\nexport SCRATCH={}\nexport HF_DATASETS_CACHE=$SCRATCH/hf\n{}srun python train.py\n"
DOCKER = "exec docker run --rm --gpus all \\\n  -v $PWD/a.yaml:/cfg/a.yaml{} \\\n  image axolotl train /cfg/a.yaml\n"
PREPARED = AXOLOTL.format("completion") + "dataset_prepared_path: /data/prepared\n"


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"train.py": SFT, "job.slurm": ARRAY.format("/local/$SLURM_JOB_ID", "")}, 1),
        ({"train.py": SFT, "job.slurm": ARRAY.format("/local/mine", "trap 'rm -rf \"$SCRATCH\"' EXIT\n")}, 1),
        ({"train.py": SFT, "job.slurm": ARRAY.format("/project/cache", "")}, 0),
        ({"train.py": SFT, "job.slurm": ARRAY.format("/project/cache", "rm -rf /tmp/old\n")}, 0),
        ({"a.yaml": PREPARED, "run.sh": DOCKER.format("")}, 1),
        ({"a.yaml": PREPARED, "run.sh": DOCKER.format(" -v /srv/prepared:/data/prepared")}, 0),
        ({"a.yaml": PREPARED, "run.sh": DOCKER.format(" -v ~/.cache/huggingface:/root/.cache/huggingface")}, 0),
        ({"a.yaml": PREPARED, "run.sh": DOCKER.format("").replace(" --rm", "")}, 0),
    ],
)
def test_caches_that_go_away(tmp_path: Path, files: dict[str, str], said: int) -> None:
    assert len(audited(tmp_path, files, select=("HST006",)).findings) == said


BLOCKED = """import lightning as L
import torch
from torch import nn


class Packed(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.att = nn.MultiheadAttention(512, 8, batch_first=True)

    def training_step(self, batch, _):
        ids, doc = batch
        blocked = {mask} | torch.ones(n, n).triu(1).bool()
        return self.att(x, x, x, attn_mask=blocked)[0].sum()


L.Trainer(max_epochs=1).fit(Packed(), loader)
"""


@pytest.mark.parametrize(
    ("mask", "said"), [("(doc[:, :, None] != doc[:, None, :])", 1), ("torch.zeros(n, n).bool()", 0)]
)
def test_masks_of_segments_under_lightning(tmp_path: Path, mask: str, said: int) -> None:
    assert len(audited(tmp_path, {"train.py": BLOCKED.format(mask=mask)}, select=("ATT001",)).findings) == said
