"""Promise: faults that projects hold in several files, or in a shape of their own, are found; what is right is not."""

from pathlib import Path

import pytest

from tests.audit.made_up import audited

LOAD = "import torch\nfrom transformers import AutoModelForCausalLM\nfrom engine import %s\n"
NET = "net = AutoModelForCausalLM.from_pretrained('Qwen/Qwen2.5-0.5B'%s)%s\n"
TRAIN = (
    "import torch\ndef train(model, loader, cfg):\n    opt = torch.optim.AdamW(model.parameters(), lr=cfg.lr)\n"
    "    model.train()\n    for batch in loader:\n        %sout = model(**batch)\n        out.loss.backward()\n"
    "        opt.step()\n        opt.zero_grad()\n"
)
FIT = (
    "import torch\nclass Fit:\n    def __init__(self, model, loader):\n        self.model = model%s\n"
    "        self.loader = loader\n        self.opt = torch.optim.AdamW(self.model.parameters(), lr=1e-5)\n"
    "    def run(self):\n        for batch in self.loader:\n            self.model(**batch).loss.backward()\n"
    "            self.opt.step()\n            self.opt.zero_grad()\n"
)
FP32 = ", dtype=torch.float32"
GOES = "train(net, make(), cfg)\n"
AUTOCAST = (
    "import torch\nfrom transformers import AutoModelForCausalLM\nAMP = %s\n"
    + NET % (FP32, ".cuda()")
    + "opt = torch.optim.AdamW(net.parameters(), lr=1e-5)\nfor batch in loader:\n"
    "    with torch.autocast('cuda', torch.bfloat16, enabled=AMP):\n        loss = net(**batch).loss\n"
    "    loss.backward()\n    opt.step()\n    opt.zero_grad()\n"
)
LOADER = (
    "from torch.utils.data import DataLoader\ndef made(rows, size):\n    return DataLoader(rows, batch_size=size%s)\n"
)
COPIES = (
    "import torch\nfrom data import made\nloader = made(rows, 8)\nmodel.cuda()\n"
    "opt = torch.optim.AdamW(model.parameters(), lr=1e-5)\nfor batch in loader:\n"
    "    batch = {k: v.cuda(non_blocking=True) for k, v in batch.items()}\n    model(**batch).loss.backward()\n"
    "    opt.step()\n    opt.zero_grad()\n"
)
SPARE = (
    "%sfrom trl import SFTConfig, SFTTrainer\nargs = SFTConfig(output_dir='o', bf16=True, max_length=%d,\n"
    "    per_device_train_batch_size=8, gradient_checkpointing=True)\n"
    "SFTTrainer('HuggingFaceTB/SmolLM2-135M', args=args, train_dataset=rows).train()\n"
)
HF = (
    "from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer, TrainingArguments\nimport settings as S\n"
    "tok = AutoTokenizer.from_pretrained(S.MODEL)\nmodel = AutoModelForCausalLM.from_pretrained(S.MODEL)\n"
    "rows = raw.map(lambda r: tok(r['text'], truncation=True, max_length=S.LENGTH))\n"
    "args = TrainingArguments(output_dir='o', bf16=True, per_device_train_batch_size=S.ROWS)\n"
    "Trainer(model=model, args=args, train_dataset=rows).train()\n"
)
SETTINGS = "# one RTX 4090\nMODEL = 'Qwen/Qwen2.5-0.5B'\nLENGTH = %d\nROWS = %d\n"
ENABLED = (
    "from transformers import AutoModelForCausalLM\nKW = {'use_reentrant': %s}\n"
    + NET % ("", "")
    + "net.gradient_checkpointing_enable(gradient_checkpointing_kwargs=KW)\n"
)
KBIT = (
    "from peft import prepare_model_for_kbit_training\n"
    "net = prepare_model_for_kbit_training(net, gradient_checkpointing_kwargs={'use_reentrant': %s})\n"
)
LOSS = "def lm_loss(out, labels):\n    logits = %s\n    return cross_entropy(logits[:, :-1], labels[:, 1:])\n"
USES = "from transformers import AutoModelForCausalLM\nfrom loss import lm_loss\n"
KEEPS = (
    "history = []\nfor step, batch in enumerate(loader):\n    out = model(**batch)\n    out.loss.backward()\n"
    "    opt.step()\n    history.append({'step': step, 'loss': out.loss%s})\n"
)
RENDERS = "def render(tok, row):\n    return tok.apply_chat_template(row['messages'], tokenize=False)\n"
TWICE = (
    "from transformers import AutoTokenizer\nfrom render import render\n"
    "tok = AutoTokenizer.from_pretrained('meta-llama/Llama-3.1-8B-Instruct')\n"
    "rows = raw.map(lambda r: tok(render(tok, r), truncation=True%s))\n"
)
WHERE = (
    "import torch\nclass Collate:\n    def __init__(self, tok):\n        self.tok = tok\n        %s\n"
    "    def __call__(self, rows):\n        batch = self.tok.pad(rows, return_tensors='pt')\n"
    "        labels = batch['input_ids'].clone()\n"
    "        batch['labels'] = torch.where(labels == self.tok.pad_token_id, torch.full_like(labels, -100), labels)\n"
    "        return batch\n"
)
FINDS = (
    "def labels_for(ids, marker):\n    start = find(ids, marker)\n    if start == -1:\n        return %s\n"
    "    return [-100] * start + ids[start:]\n"
)
ANSWERS = (
    "class AnswerOnly:\n    def __call__(self, rows):\n        out = []\n        for r in rows:\n"
    "            ids = r['input_ids']\n            labels = ids[:]\n            at = self._find(ids)\n"
    "%s            out.append({'labels': labels})\n"
    "        return out\n"
)
ENDS = (
    "from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer\ntok = AutoTokenizer.from_pretrained('gpt2')\n"
    "def encode(row):\n    p = tok(row['prompt'], add_special_tokens=False)['input_ids']\n"
    "    a = tok(row['answer']%s, add_special_tokens=False)['input_ids']%s\n"
    "    return {'input_ids': p + a, 'labels': [-100] * len(p) + a}\n"
    "model = AutoModelForCausalLM.from_pretrained('gpt2')\nTrainer(model, train_dataset=raw.map(encode)).train()\n"
)
CARD = (
    "from trl import SFTConfig, SFTTrainer\nargs = SFTConfig(output_dir='o', fp16=True, bf16=False,\n"
    "    model_init_kwargs={'attn_implementation': '%s'})\nSFTTrainer('gpt2', args=args, train_dataset=rows).train()\n"
)
BATCH = "#!/bin/bash\n#SBATCH --gres=gpu:%s:1\npython train.py\n"
HEAD = "from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer, TrainingArguments\n"
GROUPS = (
    "from itertools import chain\nBLOCK = 1024\ndef group(rows):\n"
    "    joined = {k: list(chain(*rows[k])) for k in rows}\n    total = len(joined['input_ids']) // BLOCK * BLOCK\n"
    "    return {k: [v[i : i + BLOCK] for i in range(0, total, BLOCK)] for k, v in joined.items()}\n"
)
BUFFERS = (
    "def packed(rows, length):\n    buffer = []\n    for row in rows:\n        buffer.extend(row['ids'])\n"
    "        while len(buffer) >= length:\n            yield {'input_ids': buffer[:length]%s}\n"
    "            buffer = buffer[length:]\n"
)
PACKS = (
    "from pack import *\n" + HEAD + "rows = raw.map(lambda r: tok(%s))\n"
    "args = TrainingArguments(output_dir='o', bf16=True)\nTrainer(model, args=args, train_dataset=rows).train()\n"
)
CHAT = "tok.apply_chat_template(r['messages'], tokenize=False), add_special_tokens=False"
COLLATES = (
    "import torch\nimport torch.nn.functional as F\nclass Collate:\n    def __init__(self, pad, max_len=2048):\n"
    "        self.pad, self.max_len = pad, max_len\n    def __call__(self, rows):\n        ids, mask = [], []\n"
    "        for row in rows:\n            x = torch.tensor(row['input_ids'])\n            gap = %s - %s\n"
    "            ids.append(F.pad(x, (0, gap), value=self.pad))\n"
    "            mask.append(F.pad(torch.ones_like(x), (0, gap)))\n"
    "        return {'input_ids': torch.stack(ids), 'attention_mask': torch.stack(mask)}\n"
)
WITH = (
    HEAD + "from transformers import DataCollatorForSeq2Seq\n%sargs = TrainingArguments(output_dir='o', bf16=True)\n"
    "Trainer(model, args=args, train_dataset=rows, data_collator=%s).train()\n"
)
TURNED = (
    HEAD + "tok = AutoTokenizer.from_pretrained('gpt2')\ndef encode(batch):\n    return tok(batch['text'])\n%s\n"
    "args = TrainingArguments(output_dir='o', bf16=True, remove_unused_columns=False)\n"
    "Trainer(model, args=args, train_dataset=rows).train()\n"
)
TENSORS = (
    "from torch.utils.data import DataLoader, TensorDataset\nfrom rows import Rows\nheld = %s\n"
    "loader = DataLoader(held, batch_size=8, num_workers=%d%s)\n"
)
ROWS = (
    "class Rows:\n    def __init__(self, ids):\n        self.ids = ids\n"
    "    def __getitem__(self, at):\n        return %s\n"
)
LOADED = "from datasets import load_dataset\n%s"
FOUR = (
    "from transformers import AutoModelForCausalLM, BitsAndBytesConfig\n"
    "net = AutoModelForCausalLM.from_pretrained('gpt2', %s)\n"
)
STEPS = (
    "import torch\nclass Mine(torch.nn.Module):\n    def training_step(self, batch):\n"
    "        loss = self.net(**batch).loss\n"
    "        %s\n        return loss\n"
)
UNUSED = (
    "import torch\nfrom transformers import AutoModelForCausalLM\nnet = AutoModelForCausalLM.from_pretrained('gpt2')\n"
    "device = torch.device('cuda')\n%sopt = torch.optim.AdamW(net.parameters(), lr=1e-5)\nfor batch in loader:\n"
    "    net(**batch).loss.backward()\n    opt.step()\n    opt.zero_grad()\n"
)
PARSED = (
    "import tyro\nfrom cfg import Run\nfrom trl import SFTConfig, SFTTrainer\ndef run(cfg):\n"
    "    args = SFTConfig(output_dir='o', packing=cfg.data.packing, max_length=cfg.data.longest, bf16=True,\n"
    "        model_init_kwargs={'attn_implementation': cfg.attn})\n"
    "    SFTTrainer(cfg.model, args=args, train_dataset=rows).train()\nrun(tyro.cli(Run))\n"
)
FIELDS = (
    "from dataclasses import dataclass, field\n@dataclass\nclass Data:\n    longest: int = 4096\n    packing: bool = True\n"
    "@dataclass\nclass Run:\n    model: str = 'Qwen/Qwen2.5-7B'\n    attn: str = '%s'\n"
    "    data: Data = field(default_factory=Data)\n"
)
RAISES = (
    "def mask_prompt(ids, answer):\n    labels = list(ids)\n    try:\n        start = ids.index(answer[0])\n"
    "    except ValueError:\n        return %s\n    labels[:start] = [-100] * start\n    return labels\n"
)
SPANS = (
    "import re\ndef answers(text, enc):\n    labels = enc['input_ids'].copy()\n"
    "    spans = [m.span(1) for m in re.finditer('<answer>(.*?)</answer>', text)]\n%s"
    "        for i, (s, e) in enumerate(enc['offset_mapping']):\n"
    "            if not any(a <= s and e <= b for a, b in spans):\n                labels[i] = -100\n    return labels\n"
)
ADDED = (
    HEAD
    + "from transformers import DataCollatorForLanguageModeling\ntok = AutoTokenizer.from_pretrained('gpt2')\n%s"
    + ("Trainer(model, train_dataset=rows, data_collator=DataCollatorForLanguageModeling(tok, mlm=False)).train()\n")
)
COLUMN = (
    "def to_text(tok):\n    def made(row):\n"
    "        return {'text': tok.apply_chat_template(row['messages'], tokenize=False%s)}\n"
    "    return made\n"
)
TEXT = (
    "from fmt import to_text\nfrom transformers import AutoTokenizer\nfrom trl import SFTConfig, SFTTrainer\n"
    "tok = AutoTokenizer.from_pretrained('%s')\nrows = raw.map(to_text(tok))\n"
    "SFTTrainer('%s', args=SFTConfig(output_dir='o'), train_dataset=rows).train()\n"
)
LLAMA, QWEN = "meta-llama/Llama-3.1-8B-Instruct", "Qwen/Qwen2.5-7B-Instruct"
OPEN = ", add_generation_prompt=True"

FOUND = [
    ("HST001", {"train.py": STEPS % "self.seen.append(loss.item())"}),
    ("HST004", {"train.py": UNUSED % ""}),
    ("ATT001", {"train.py": PARSED, "cfg.py": FIELDS % "sdpa"}),
    ("MSK050", {"train.py": RAISES % "labels"}),
    ("MSK050", {"train.py": SPANS % "    if spans:\n"}),
    ("MSK003", {"train.py": ADDED % "tok.add_special_tokens({'pad_token': tok.eos_token})\n"}),
    ("MSK053", {"train.py": TEXT % (LLAMA, LLAMA), "fmt.py": COLUMN % ""}),
    ("MSK056", {"train.py": TEXT % (QWEN, QWEN), "fmt.py": COLUMN % OPEN}),
    ("PAD001", {"train.py": PACKS % CHAT, "pack.py": GROUPS}),
    ("PAD001", {"train.py": PACKS % CHAT, "pack.py": BUFFERS % ""}),
    (
        "PAD005",
        {
            "train.py": WITH % ("from c import Collate\n", "Collate(0)"),
            "c.py": COLLATES % ("self.max_len", "x.size(0)"),
        },
    ),
    (
        "PAD005",
        {"train.py": WITH % ("from c import Collate\n", "Collate(0)"), "c.py": COLLATES % ("self.max_len", "len(x)")},
    ),
    ("PAD005", {"train.py": WITH % ("", "DataCollatorForSeq2Seq(tok, pad_to_multiple_of=2048)")}),
    ("HST005", {"train.py": TURNED % "rows.set_transform(encode)"}),
    ("HST005", {"train.py": TURNED % "rows = raw.with_transform(encode)"}),
    (
        "HST051",
        {
            "train.py": TENSORS % ("load(p)", 16, ""),
            "rows.py": "class Rows: pass\ndef load(p):\n    return TensorDataset(p)\n",
        },
    ),
    (
        "HST051",
        {
            "train.py": TENSORS % ("load(p)", 8, ""),
            "rows.py": "class Rows: pass\ndef load(p):\n    d = TensorDataset(p)\n    return d\n",
        },
    ),
    ("HST051", {"train.py": TENSORS % ("TensorDataset(ids)", 16, ""), "rows.py": ""}),
    ("HST051", {"train.py": TENSORS % ("Rows(ids)", 8, ""), "rows.py": ROWS % "self.ids[at]"}),
    ("HST006", {"train.py": LOADED % "rows = load_dataset('a/b', download_mode='force_redownload')\n"}),
    ("HST006", {"train.py": LOADED % "rows = load_dataset('a/b').map(f, keep_in_memory=True)\n"}),
    (
        "HST006",
        {"train.py": "import os, tempfile\nos.environ['HF_DATASETS_CACHE'] = tempfile.mkdtemp()\n" + LOADED % ""},
    ),
    ("HST006", {"train.py": LOADED % "", "run.sh": "rm -rf ~/.cache/huggingface/datasets\npython train.py\n"}),
    ("PRC006", {"train.py": FOUR % "load_in_4bit=True"}),
    ("PRC006", {"main.py": LOAD % "train" + NET % (FP32, ".to('cuda')") + GOES, "engine.py": TRAIN % ""}),
    ("PRC006", {"train.py": AUTOCAST % "False"}),
    ("HST004", {"main.py": LOAD % "Fit" + NET % ("", "") + "Fit(net, make()).run()\n", "engine.py": FIT % ""}),
    ("HST053", {"train.py": COPIES, "data.py": LOADER % ""}),
    ("HST053", {"train.py": COPIES, "data.py": LOADER % ", pin_memory=False"}),
    ("MEM001", {"train.py": SPARE % ("# one H100 80GB\n", 512)}),
    ("MEM001", {"train.py": SPARE % ("", 512), "README.md": "Trained on one A100 with 80 GB.\n"}),
    ("MEM003", {"train.py": HF, "settings.py": SETTINGS % (4096, 8)}),
    ("MEM002", {"train.py": ENABLED % "True"}),
    ("MEM002", {"train.py": KBIT % "True"}),
    ("MEM003", {"train.py": USES, "loss.py": LOSS % "out.logits.float()"}),
    ("MEM053", {"train.py": KEEPS % ""}),
    ("MSK053", {"train.py": TWICE % "", "render.py": RENDERS}),
    ("MSK003", {"train.py": WHERE % "self.tok.pad_token_id = self.tok.eos_token_id"}),
    ("MSK050", {"train.py": FINDS % "list(ids)"}),
    ("MSK050", {"train.py": ANSWERS % "            if at is not None:\n                labels[:at] = [-100] * at\n"}),
    ("MSK056", {"train.py": ENDS % ("", "")}),
    ("ATT005", {"train.py": CARD % "flash_attention_2", "job.sh": BATCH % "v100"}),
]
RIGHT = [
    ("HST001", {"train.py": STEPS % "self.seen.append(loss.detach())"}),
    ("HST004", {"train.py": UNUSED % "net.to(device)\n"}),
    ("ATT001", {"train.py": PARSED, "cfg.py": FIELDS % "flash_attention_2"}),
    ("MSK050", {"train.py": RAISES % "[-100] * len(ids)"}),
    ("MSK050", {"train.py": SPANS % "    if True:\n"}),
    ("MSK003", {"train.py": ADDED % "tok.add_special_tokens({'pad_token': '<pad>'})\n"}),
    ("MSK053", {"train.py": TEXT % (QWEN, QWEN), "fmt.py": COLUMN % ""}),
    ("MSK056", {"train.py": TEXT % (QWEN, QWEN), "fmt.py": COLUMN % ""}),
    ("MSK056", {"chat.py": COLUMN % OPEN}),
    ("PAD001", {"train.py": PACKS % "r['text']", "pack.py": GROUPS}),
    ("PAD001", {"train.py": PACKS % CHAT, "pack.py": BUFFERS % ", 'position_ids': at"}),
    (
        "PAD005",
        {
            "train.py": WITH % ("from c import Collate\n", "Collate(0)"),
            "c.py": COLLATES % ("max(map(len, rows))", "len(x)"),
        },
    ),
    ("PAD005", {"train.py": WITH % ("", "DataCollatorForSeq2Seq(tok, pad_to_multiple_of=8)")}),
    ("HST005", {"train.py": TURNED % "rows = raw.map(encode)"}),
    (
        "HST051",
        {"train.py": TENSORS % ("load(p)", 16, ""), "rows.py": "class Rows: pass\ndef load(p):\n    return Files(p)\n"},
    ),
    ("HST051", {"train.py": TENSORS % ("TensorDataset(ids)", 0, ""), "rows.py": ""}),
    ("HST051", {"train.py": TENSORS % ("TensorDataset(ids)", 16, ", collate_fn=f"), "rows.py": ""}),
    ("HST051", {"train.py": TENSORS % ("Rows(ids)", 8, ""), "rows.py": ROWS % "made(self.ids[at])"}),
    ("HST006", {"train.py": LOADED % "rows = load_dataset('a/b').map(f, num_proc=8)\n"}),
    ("HST006", {"train.py": LOADED % "", "run.sh": "rm -rf out\npython train.py\n"}),
    ("PRC006", {"train.py": FOUR % "load_in_8bit=True"}),
    (
        "PRC006",
        {"main.py": LOAD % "train" + NET % (", dtype=torch.bfloat16", ".to('cuda')") + GOES, "engine.py": TRAIN % ""},
    ),
    ("PRC006", {"train.py": AUTOCAST % "True"}),
    ("HST004", {"main.py": LOAD % "Fit" + NET % ("", "") + "Fit(net, make()).run()\n", "engine.py": FIT % ".cuda()"}),
    (
        "HST004",
        {"main.py": LOAD % "Fit" + NET % ("", ".to('cuda')") + "Fit(net, make()).run()\n", "engine.py": FIT % ""},
    ),
    ("HST053", {"train.py": COPIES, "data.py": LOADER % ", pin_memory=True"}),
    ("MEM001", {"train.py": SPARE % ("# one H100 80GB\n", 8192)}),
    ("MEM001", {"train.py": SPARE % ("", 512)}),
    ("MEM003", {"train.py": HF, "settings.py": SETTINGS % (512, 4)}),
    ("MEM002", {"train.py": ENABLED % "False"}),
    ("MEM002", {"train.py": KBIT % "False"}),
    ("MEM003", {"train.py": USES, "loss.py": LOSS % "out.logits"}),
    ("MEM053", {"train.py": KEEPS % ".detach()"}),
    ("MSK053", {"train.py": TWICE % ", add_special_tokens=False", "render.py": RENDERS}),
    ("MSK003", {"train.py": WHERE % "self.tok.pad_token = '<pad>'"}),
    ("MSK050", {"train.py": FINDS % "[-100] * len(ids)"}),
    (
        "MSK050",
        {
            "train.py": ANSWERS
            % "            if at is None:\n                raise ValueError\n            labels[:at] = [-100] * at\n"
        },
    ),
    ("MSK056", {"train.py": ENDS % (" + tok.eos_token", "")}),
    ("MSK056", {"train.py": ENDS % ("", " + [tok.eos_token_id]")}),
    ("ATT005", {"train.py": CARD % "flash_attention_2", "job.sh": BATCH % "a100"}),
    ("ATT005", {"train.py": CARD % "sdpa", "job.sh": BATCH % "v100"}),
]


@pytest.mark.parametrize(("code", "files"), FOUND)
def test_found(code: str, files: dict[str, str], tmp_path: Path) -> None:
    assert {one.code for one in audited(tmp_path, files, select=(code,)).findings} == {code}


@pytest.mark.parametrize(("code", "files"), RIGHT)
def test_right(code: str, files: dict[str, str], tmp_path: Path) -> None:
    assert not audited(tmp_path, files, select=(code,)).findings
