"""Promise: faults of own training loops are found in the shapes that repositories have them in, the nearest right thing is
not, and a comment that answers for one is taken."""

import json
from pathlib import Path

import pytest

from tests.audit.made_up import audited

STEP = (
    "        loss = model(**batch).loss\n        loss.backward()\n        optimizer.step()\n"
    "        optimizer.zero_grad()\n"
)
READS = (
    "import torch\nmodel.cuda()\nfor epoch in range(3):\n    for i, batch in enumerate(loader):\n        if %s:\n"
    f"            continue\n{STEP}        total += loss.item()\n"
)
CLOCK = (
    "import time, timeit, datetime\nimport torch\nmodel.cuda()\n%s\nstart = %s\nfor step, batch in enumerate(loader):\n"
    "    model(**batch).loss.backward()\n    optimizer.step()\n    optimizer.zero_grad()\n    if step %% 50 == 0:\n"
    "        print(f'{step * 16 / %s:.1f} rows/s')\n"
)
LR = (
    "def lr_at(step):\n    if step < cfg['warmup']:\n        return cfg['lr'] * step / cfg['warmup']\n"
    "    return cfg['lr']\n"
)
FIRST = "def is_timed(step):\n    if step < cfg.warmup_steps:\n        return False\n    return True\n"
SINCE = "(time.time() - start)"
EPOCHS = (
    "import time\nimport torch\nmodel.cuda()\nfor epoch in %s:\n    start = time.time()\n"
    "    for step, batch in enumerate(loader):\n"
    f"{STEP}%s        pass\n    print(len(loader) / (time.time() - start), 'steps a second')\n"
)
INSIDE = "        print(step / (time.time() - start))\n"
KEEPS = (
    "import torch\nfor epoch in range(40):\n    for batch in loader:\n"
    f"{STEP}    if accuracy(model) > best:\n        torch.save(model.state_dict(), 'best.pt')\n"
)
ONCE = (
    "import torch\nmodel.cuda()\nfor step in range(cfg['steps']):\n    batch = data.next()\n"
    "    model(**batch).loss.backward()\n    optimizer.step()\n"
    "    optimizer.zero_grad()\n%storch.save(model.state_dict(), 'final.pt')\n"
)
SLURM = "#!/bin/bash\n#SBATCH --time=%s\n%s\nsrun python train.py\n"
RANKED = (
    "import argparse\nfrom accelerate import Accelerator\nfrom torch.utils.data import DataLoader\n"
    "p = argparse.ArgumentParser()\n"
    "p.add_argument('--batch', type=int, help='%s')\np.add_argument('--per_device_train_batch_size', type=int)\n"
    "args = p.parse_args()\naccelerator = Accelerator(%s)\nbatch_size = %s\n"
    "loader = DataLoader(rows, batch_size=batch_size)\n"
    "loader = accelerator.prepare(loader)\n"
)
EACH = "args.per_device_train_batch_size"

ASKS = "import os\nfrom setup import begin\n%s\n\n\ndef main():\n    %s\n\n\nif __name__ == '__main__':\n    main()\n"
GET = "rank = int(os.environ.get('RANK', 0))"
BEGINS = "import os\n\n\ndef begin():\n%s\n"
SLURMS = "    os.environ['RANK'] = os.environ['SLURM_PROCID']"
UPDATES = "    os.environ.update({'RANK': os.environ['OMPI_COMM_WORLD_RANK']})"
PAIRED = (
    "    for ours, theirs in (('RANK', 'SLURM_PROCID'), ('WORLD_SIZE', 'SLURM_NTASKS')):\n"
    "        os.environ.setdefault(ours, os.environ[theirs])"
)
SRUN = "srun python t.py\n"

PREFERS = (
    "import copy\nimport torch\nfrom transformers import AutoModelForCausalLM\nfrom losses import %s\n%s\n"
    "for epoch in range(3):\n    for batch in loader:\n        policy = logps(model, batch)\n        %s\n"
    "        loss = dpo(policy, scores)\n        loss.backward()\n        optimizer.step()\n"
    "        optimizer.zero_grad()\n"
)
LOSSES = "import torch\nimport torch.nn.functional as F\ndef dpo(a, b):\n    return -F.%s(a - b).mean()\n"
COPIED = "start = copy.deepcopy(model).eval().requires_grad_(False)"
QUIET = "with torch.no_grad():\n            scores = logps(start, batch)"
NO_GRAD = "@torch.no_grad()\ndef held(net, batch):\n    return net(**batch).logits\n"
PAIRS_OF = LOSSES % "logsigmoid"
MINE = (
    "import torch\nimport torch.nn.functional as F\nfrom transformers import Trainer\nclass Pairs(Trainer):\n"
    "    def compute_loss(self, model, inputs, **kwargs):\n        policy = model(**inputs['chosen']).logits\n"
    "        with %s:\n            fixed = self.ref_model(**inputs['chosen']).logits\n"
    "        return -F.logsigmoid(policy - fixed)\n"
)

PADS = (
    "import torch\nfrom torch.nn.utils.rnn import pad_sequence\nfrom transformers import AutoTokenizer\n%s\n"
    "class Collate:\n"
    "    def __call__(self, rows):\n        width = max(len(r['labels']) for r in rows)\n        %s\n"
    "        return {'input_ids': ids(rows), 'labels': labels}\n"
)
OWN_PAD = "padded = self.tokenizer.pad([{'input_ids': r['labels']} for r in rows]); labels = padded['input_ids']"
SEQUENCE = "labels = pad_sequence([r['labels'] for r in rows], batch_first=True, padding_value=%s)"
METRIC = "def metric(pred):\n    ids = pred.label_ids\n    ids[ids == -100] = 0\n    return wer(ids)\n"
SUMMARISES = (
    "from transformers import AutoTokenizer\ntok = AutoTokenizer.from_pretrained('t5-small')\ndef encode(rows):\n"
    "    out = tok(rows['text'], truncation=True)\n"
    "    labels = tok(rows['summary'], max_length=64, padding='max_length')\n"
    "    out['labels'] = %s\n    return out\ndef metric(p):\n"
    "    labels = np.where(p.label_ids != -100, p.label_ids, 0)\n"
)

LOADS = (
    "import torch\nfrom transformers import AutoModelForCausalLM, BitsAndBytesConfig, Trainer, TrainingArguments\n"
    "from peft import LoraConfig, get_peft_model\n%s\nquant = BitsAndBytesConfig(load_in_4bit=True)\n"
    "model = AutoModelForCausalLM.from_pretrained('meta-llama/%s', quantization_config=quant, device_map=%s)\n"
    "model = get_peft_model(model, LoraConfig(r=8))\n"
    "Trainer(model, TrainingArguments(output_dir='o', fp16=True), train_dataset=d).train()\n"
)
SMALL, LARGE = "Llama-3.2-3B", "Llama-3.3-70B-Instruct"
BESIDE = {"README.md": "Runs on 2x T4, which train in data parallel.\n"}
TWO = {"README.md": "One box with two RTX 4090 24 GB.\n"}
OLD = {"README.md": "Trained on a Tesla T4.\n", "setup.sh": "pip install flash-attn --no-build-isolation\n"}

COUNTED = (
    "import time\nfrom transformers import DataCollatorWithPadding, TrainerCallback\n"
    "collate = DataCollatorWithPadding(tok)\n"
    "class Rate(TrainerCallback):\n    def on_log(self, args, state, control, **kw):\n"
    "        rows = state.global_step * args.train_batch_size\n        rate = %s\n"
    "        print(f'{rate:,.0f} tokens/s')\n"
)
CUT = "rows * 2 * self.max_length / (time.perf_counter() - self.start)"
MASKS = (
    "import torch\nfrom transformers import AutoModelForCausalLM\n"
    "model = AutoModelForCausalLM.from_pretrained('Qwen/Qwen2.5-7B', attn_implementation='%s').cuda()\n"
    "def collate(docs):\n    segments = numbers(docs)\n    causal = torch.ones(9, 9).tril()\n    %s\n"
    "    return {'input_ids': ids(docs), 'attention_mask': %s}\n"
    "for batch in loader(collate):\n    model(**batch).loss.backward()\n    optimizer.step()\n"
    "    optimizer.zero_grad()\n"
)
SAME = "same = segments[:, :, None] == segments[:, None, :]"
SQUEEZED = "same = (segments.unsqueeze(-1) == segments.unsqueeze(-2)) & causal"
BLOCKS = "same = torch.block_diag(*[torch.ones(len(d), len(d)).tril() for d in docs])"
FILLED = "for a, b in ends(docs):\n        same[0, 0, a:b, a:b] = causal[: b - a, : b - a]"
RECOMPUTES = (
    "import torch\nfrom transformers import AutoModel\nmodel = AutoModel.from_pretrained('x/y').cuda()\n%s\n"
    "for batch in loader:\n    model(**batch).loss.backward()\n    optimizer.step()\n    optimizer.zero_grad()\n"
)
ON = "model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={'use_reentrant': False})"
WSL = (
    "import torch\nfrom torch.utils.data import DataLoader\nloader = DataLoader(rows, batch_size=8, num_workers=%d)\n"
    + RECOMPUTES % ""
)

ROUND = (
    "import torch, time\nimport torch.distributed as dist\n"
    "from torch.nn.parallel import DistributedDataParallel as DDP\n"
    "from torch.utils.data import DataLoader\nfrom torch.utils.data.distributed import DistributedSampler\n"
    "world_size = dist.get_world_size()\nmodel = DDP(model.cuda(), device_ids=[local_rank])\n%s\n"
    "for e in range(10):\n    for x, y in batches:\n        loss = model(x.cuda(), y.cuda())\n        loss.backward()\n"
    "        %s\n        optimizer.step()\n        optimizer.zero_grad()\n"
)
SAMPLES = "batches = DataLoader(d, batch_size=8, sampler=DistributedSampler(d, shuffle=%s))"
EVERY = "torch.manual_seed(1)\nbatches = DataLoader(d, batch_size=8, %s)"
DRAWS = (
    "import torch\nfrom torch.nn.parallel import DistributedDataParallel as DDP\ntorch.manual_seed(%s)\n"
    "def get_batch():\n"
    "    at = torch.randint(len(data) - 64, (8,))\n    return torch.stack([data[i : i + 64] for i in at]).cuda()\n"
    "model = DDP(Net().cuda(), device_ids=[rank])\nfor step in range(1000):\n    x = get_batch()\n    loss = model(x)\n"
    "    loss.backward()\n    optimizer.step()\n    optimizer.zero_grad()\n"
)
MICRO = (
    "import torch\nmodel.cuda()\nstep = 0\nwhile True:\n    for micro in range(8):\n        loss = model(x) / 8\n"
    "        loss.backward()\n    optimizer.step()\n    optimizer.zero_grad()\n%s    step += 1\n"
)
TIMES = (
    "import time, torch\nmodel.cuda()\nfor x in loader:\n    t0 = time.time()\n    loss = model(x)\n"
    "    loss.backward()\n"
    "    optimizer.step()\n    optimizer.zero_grad()\n%s    t1 = time.time()\n    print((t1 - t0) * 1000)\n"
)
MEANS = (
    "import torch\nmodel.cuda()\nmean = None\nfor x in loader:\n    loss = model(x)\n    loss.backward()\n"
    "    optimizer.step()\n    optimizer.zero_grad()\n    mean = %s\n"
)
LEARNS = (
    "import torch\nimport torch.nn.functional as F\nfrom transformers import AutoModelForCausalLM\n"
    "model = AutoModelForCausalLM.from_pretrained('gpt2').cuda()\ncriterion = torch.nn.CrossEntropyLoss()\n"
    "for b in loader:\n    logits = model(b['input_ids']).logits\n    %s\n    loss.backward()\n    optimizer.step()\n"
    "    optimizer.zero_grad()\n"
)
BETWEEN = "shifted = logits[..., :-1, :].flatten(0, 1)\n    loss = criterion(shifted, b['labels'][..., 1:].flatten())"
TEACHES = (
    "import torch\nfrom transformers import Trainer\nclass Distil(Trainer):\n"
    "    def __init__(self, *a, teacher=None, **k):\n"
    "        super().__init__(*a, **k)\n        self.teacher = teacher%s\n"
    "    def compute_loss(self, model, inputs, **kw):\n"
    "        out = model(**inputs)\n        %swanted = self.teacher(**inputs).logits\n"
    "        return kd(out.logits, wanted)\n"
)
CALLBACK = (
    "import time\nfrom transformers import TrainerCallback\nclass Speed(TrainerCallback):\n"
    "    def on_train_begin(self, args, state, control, **kw):\n        self.t0 = time.time()\n"
    "    def on_step_end(self, args, state, control, **kw):\n        %s\n"
    "    def on_log(self, args, state, control, **kw):\n"
    "        print(state.global_step * args.train_batch_size / (time.time() - self.t0))\n"
)

SHAPES = [
    ("DST054", {"t.py": ROUND % (SAMPLES % "True", "pass")}, True),
    ("DST054", {"t.py": ROUND % (SAMPLES % "False", "pass")}, False),
    ("DST054", {"t.py": ROUND % (SAMPLES % "True", "batches.sampler.set_epoch(e)")}, False),
    ("DST050", {"t.py": ROUND % ("", "for p in model.parameters(): p.grad /= world_size")}, True),
    ("DST050", {"t.py": ROUND % ("", "for p in model.parameters(): p.grad.div_(world_size)")}, True),
    ("DST050", {"t.py": ROUND % ("", "for p in model.parameters(): p.grad = p.grad / world_size")}, True),
    (
        "DST050",
        {"t.py": ROUND % ("", "for p in model.parameters(): dist.all_reduce(p.grad); p.grad /= world_size")},
        False,
    ),
    ("DST050", {"t.py": ROUND % ("", "for p in model.parameters(): p.grad /= norm")}, False),
    ("DST057", {"t.py": ROUND % (EVERY % "shuffle=True", "pass")}, True),
    ("DST057", {"t.py": ROUND % (EVERY % "sampler=DistributedSampler(d)", "pass")}, False),
    ("DST057", {"t.py": DRAWS % "1337"}, True),
    ("DST057", {"t.py": DRAWS % "1337 + rank"}, False),
    ("DST057", {"t.py": DRAWS % "1337 + seed_offset"}, False),
    ("DST057", {"t.py": (DRAWS % "1").replace("DDP(Net().cuda(), device_ids=[rank])", "Net().cuda()")}, False),
    ("HST001", {"t.py": MICRO % "    print(loss.item())\n"}, True),
    ("HST001", {"t.py": MICRO % "    if step % 10 == 0:\n        print(loss.item())\n"}, False),
    ("MSR002", {"t.py": TIMES % ""}, True),
    ("MSR002", {"t.py": TIMES % "    torch.cuda.synchronize()\n"}, False),
    ("MEM053", {"t.py": MEANS % "loss if mean is None else 0.9 * mean + 0.1 * loss"}, True),
    ("MEM053", {"t.py": MEANS % "mean * 0.99 + loss"}, True),
    ("MEM053", {"t.py": MEANS % "0.9 * mean + 0.1 * loss.detach()"}, False),
    ("MEM053", {"t.py": MEANS % "0.1 * loss"}, False),  # one step's graph, until the next
    ("MSK051", {"t.py": LEARNS % "loss = F.cross_entropy(logits.view(-1, 9), b['input_ids'].view(-1))"}, True),
    ("MSK051", {"t.py": LEARNS % "loss = criterion(logits.transpose(1, 2), b['labels'])"}, True),
    ("MSK051", {"t.py": LEARNS % BETWEEN}, False),
    (
        "MSK051",
        {
            "t.py": (LEARNS % "loss = criterion(logits.transpose(1, 2), b['labels'])").replace(
                "CausalLM", "TokenClassification"
            )
        },
        False,
    ),
    ("MEM052", {"t.py": TEACHES % ("", "")}, True),
    ("MEM052", {"t.py": TEACHES % ("", "with torch.no_grad(): ")}, False),
    ("MEM052", {"t.py": TEACHES % (".requires_grad_(False)", "")}, False),
    ("MEM052", {"t.py": TEACHES % ("", "") + "teacher = load().requires_grad_(False)\n"}, False),
    ("MSR004", {"t.py": CALLBACK % "pass"}, True),
    ("MSR004", {"t.py": CALLBACK % "if state.global_step == 10:\n            self.t0 = time.time()"}, False),
    ("MSR001", {"t.py": COUNTED % CUT}, True),
    ("MSR001", {"t.py": COUNTED % CUT.replace("2 * self.max_length", "kw['seen']")}, False),
    ("MSR001", {"t.py": (COUNTED % CUT).replace("tokens/s", "USD")}, False),
    ("ATT001", {"t.py": MASKS % ("sdpa", SAME, "same & causal")}, True),
    ("ATT001", {"t.py": MASKS % ("eager", SQUEEZED, "same")}, True),
    ("ATT001", {"t.py": MASKS % ("sdpa", BLOCKS, "same[None, None]")}, True),
    ("ATT001", {"t.py": MASKS % ("sdpa", FILLED, "same")}, True),
    ("ATT001", {"t.py": MASKS % ("flash_attention_2", SAME, "same & causal")}, False),
    ("ATT001", {"t.py": MASKS % ("sdpa", "same = segments >= 0", "same")}, False),
    (
        "ATT001",
        {"t.py": "from torch.nn.attention.flex_attention import create_block_mask\n" + MASKS % ("sdpa", SAME, "same")},
        False,
    ),
    ("MEM001", {"t.py": RECOMPUTES % ON, "README.md": "* GPU memory in use: 3.1 GB of 24\n"}, True),
    ("MEM001", {"t.py": RECOMPUTES % ON, "README.md": "One RTX 4090 24 GB.\nnvidia-smi shows 5 GB in use.\n"}, True),
    ("MEM001", {"t.py": RECOMPUTES % f"if cfg.low:\n    {ON}", "README.md": "Peak VRAM 11 GB / 80 GB\n"}, True),
    ("MEM001", {"t.py": RECOMPUTES % ON, "README.md": "* GPU memory in use: 21 GB of 24\n"}, False),
    ("MEM001", {"t.py": RECOMPUTES % ON, "README.md": "* GPU memory without checkpointing: 5 GB of 24\n"}, False),
    (
        "MEM001",
        {"t.py": RECOMPUTES % ON, "README.md": "* GPU memory in use: 3 GB; evaluation takes 9 GB of 24\n"},
        False,
    ),
    ("MEM001", {"t.py": RECOMPUTES % "", "README.md": "* GPU memory in use: 3.1 GB of 24\n"}, False),
    (
        "MEM001",
        {
            "t.py": RECOMPUTES % f"if cfg.gradient_checkpointing:\n    {ON}",
            "c.yaml": "gradient_checkpointing: false\n",
            "README.md": "* GPU memory in use: 3.1 GB of 24\n",
        },
        False,
    ),
    ("HST051", {"t.py": WSL % 12, "README.md": "My desktop: WSL2 with an RTX 4090 24 GB.\n"}, True),
    ("HST051", {"t.py": WSL % 2, "README.md": "My desktop: WSL2 with an RTX 4090 24 GB.\n"}, False),
    ("HST051", {"t.py": WSL % 12, "README.md": "Also tested under WSL2 with an RTX 4090 24 GB.\n"}, False),
    ("HST051", {"t.py": WSL % 12, "README.md": "A server with an RTX 4090 24 GB.\n"}, False),
    ("DST004", {"t.py": LOADS % ("", SMALL, "'auto'"), **BESIDE}, True),
    ("DST004", {"t.py": LOADS % ("", LARGE, "'auto'"), **BESIDE}, True),
    ("DST004", {"t.py": LOADS % ("# all 4 GPUs are used in parallel\n", LARGE, "'balanced'")}, True),
    ("DST004", {"t.py": LOADS % ("", SMALL, "'auto'"), **TWO}, True),  # it fits one
    ("DST004", {"t.py": LOADS % ("", LARGE, "'auto'"), **TWO}, False),
    ("DST004", {"t.py": LOADS % ("", SMALL, "'auto'")}, False),
    ("DST004", {"t.py": LOADS % ("", SMALL, "{'': 0}"), **TWO}, False),
    ("DST004", {"t.py": LOADS % ("", SMALL, "'auto'"), "README.md": "One T4, 16 GB.\n"}, False),
    ("DST004", {"t.py": LOADS % ("model_parallel = True", SMALL, "'auto'"), **TWO}, False),
    ("ATT005", {"t.py": LOADS % ("", SMALL, "'auto', attn_implementation='sdpa'"), **OLD}, True),
    ("ATT005", {"t.py": LOADS % ("", SMALL, "'auto'"), **OLD}, True),
    ("ATT005", {"t.py": LOADS % ("", SMALL, "'auto'"), **OLD, "README.md": "Trained on an L4.\n"}, False),
    ("ATT005", {"t.py": LOADS % ("", SMALL, "'auto'"), "README.md": OLD["README.md"]}, False),
    ("MSK052", {"t.py": PADS % (METRIC, OWN_PAD)}, True),
    ("MSK052", {"t.py": PADS % ("", SEQUENCE % "self.pad_token_id")}, True),
    ("MSK052", {"t.py": PADS % ("", SEQUENCE % "0")}, True),
    (
        "MSK052",
        {"t.py": PADS % ("", "labels = [r['labels'] + [self.pad] * (width - len(r['labels'])) for r in rows]")},
        True,
    ),
    ("MSK052", {"t.py": SUMMARISES % "labels['input_ids']"}, True),
    ("MSK052", {"t.py": SUMMARISES % "[[i if i else -100 for i in row] for row in labels['input_ids']]"}, False),
    ("MSK052", {"t.py": PADS % ("", SEQUENCE % "-100")}, False),
    ("MSK052", {"t.py": PADS % ("", SEQUENCE % "IGNORE")}, False),
    ("MSK052", {"t.py": PADS % (METRIC, OWN_PAD + "\n        labels[padded['attention_mask'] == 0] = -100")}, False),
    (
        "MSK052",
        {
            "t.py": PADS % ("", SEQUENCE % "pad_id"),
            "loss.py": "from t import Collate\nf = nn.CrossEntropyLoss(ignore_index=pad_id)\n",
        },
        False,
    ),
    ("DPO001", {"t.py": PREFERS % ("dpo", COPIED, QUIET), "losses.py": PAIRS_OF}, True),
    (
        "DPO001",
        {
            "t.py": PREFERS
            % ("dpo", COPIED.replace("copy.deepcopy(model)", "AutoModelForCausalLM.from_pretrained('a')"), QUIET),
            "losses.py": PAIRS_OF,
        },
        True,
    ),
    (
        "DPO001",
        {"t.py": PREFERS % ("dpo, held", COPIED, "scores = held(start, batch)"), "losses.py": PAIRS_OF + NO_GRAD},
        True,
    ),
    (
        "DPO001",
        {
            "t.py": PREFERS
            % (
                "dpo",
                "",
                QUIET.replace("torch.no_grad()", "torch.no_grad(), model.disable_adapter()").replace("start", "model"),
            ),
            "losses.py": PAIRS_OF,
        },
        True,
    ),
    ("DPO001", {"t.py": MINE % "torch.no_grad()"}, True),
    ("DPO001", {"t.py": MINE % "torch.autocast('cuda')"}, False),
    ("DPO001", {"t.py": PREFERS % ("dpo", COPIED, QUIET), "losses.py": LOSSES % "relu"}, False),  # no pairs
    (
        "DPO001",
        {
            "t.py": PREFERS % ("dpo", f"{COPIED}\ndef look():\n    show(model.generate(ids))", QUIET),
            "losses.py": PAIRS_OF,
        },
        True,
    ),
    (
        "DPO001",
        {"t.py": PREFERS % ("dpo", COPIED, f"if config.loss.name == 'dpo':\n          {QUIET}"), "losses.py": PAIRS_OF},
        True,
    ),
    (
        "DPO001",
        {"t.py": PREFERS % ("dpo", COPIED, f"if step % 100 == 0:\n          {QUIET}"), "losses.py": PAIRS_OF},
        False,
    ),
    (
        "DPO001",
        {"t.py": PREFERS % ("dpo", COPIED, f"batch = model.generate(batch)\n        {QUIET}"), "losses.py": PAIRS_OF},
        False,
    ),
    ("DPO001", {"t.py": PREFERS % ("dpo", COPIED, "scores = batch['kept']"), "losses.py": PAIRS_OF}, False),
    (
        "DPO001",
        {"t.py": PREFERS % ("dpo", "start = copy.deepcopy(model)", QUIET), "losses.py": PAIRS_OF},
        False,
    ),  # it moves
    ("DST051", {"t.py": ASKS % (GET, "begin()"), "setup.py": BEGINS % SLURMS, "j.sh": SRUN}, True),
    ("DST051", {"t.py": ASKS % (GET, "begin()"), "setup.py": BEGINS % UPDATES, "j.sh": "mpirun python t.py\n"}, True),
    ("DST051", {"t.py": ASKS % ("", f"{GET}\n    begin()"), "setup.py": BEGINS % PAIRED}, True),
    (
        "DST051",
        {"t.py": ASKS % ("import log", "begin()"), "log.py": f"import os\n{GET}\n", "setup.py": BEGINS % SLURMS},
        True,
    ),
    (
        "DST051",
        {"t.py": ASKS % ("", "begin()\n    import log"), "log.py": f"import os\n{GET}\n", "setup.py": BEGINS % SLURMS},
        False,
    ),
    ("DST051", {"t.py": ASKS % ("", f"begin()\n    {GET}"), "setup.py": BEGINS % SLURMS, "j.sh": SRUN}, False),
    ("DST051", {"t.py": ASKS % (f"begin()\n{GET}", "pass"), "setup.py": BEGINS % SLURMS, "j.sh": SRUN}, False),
    ("DST051", {"t.py": ASKS % (GET, "begin()"), "setup.py": BEGINS % SLURMS, "j.sh": "torchrun t.py\n"}, False),
    ("DST051", {"t.py": ASKS % (GET, "begin()"), "setup.py": BEGINS % "    pass", "j.sh": SRUN}, False),
    (
        "DST051",
        {"t.py": ASKS % ("rank = os.environ['RANK']", "begin()"), "setup.py": BEGINS % SLURMS},
        False,
    ),  # it stops
    ("HST001", {"train.py": READS % "i <= skip"}, True),
    ("HST001", {"train.py": READS % "epoch == first_epoch and i < resume_step"}, True),
    ("HST001", {"train.py": READS % "batch is None"}, True),
    ("HST001", {"train.py": READS % "len(batch) == 0"}, True),
    ("HST001", {"train.py": READS % "not accelerator.is_main_process"}, True),
    ("HST001", {"train.py": READS % "i % 50"}, False),
    ("HST001", {"train.py": READS % "(i + 1) % accumulate < resume"}, False),
    ("HST001", {"train.py": READS % "not accelerator.sync_gradients"}, False),
    ("HST001", {"train.py": READS % "not should_log(i)"}, False),
    ("MSR004", {"train.py": CLOCK % (LR, "time.time()", SINCE)}, True),
    ("MSR004", {"train.py": CLOCK % (FIRST, "time.time()", SINCE)}, False),
    ("MSR004", {"train.py": CLOCK % ("", "timeit.default_timer()", "(timeit.default_timer() - start)")}, True),
    ("MSR004", {"train.py": CLOCK % ("", "time.monotonic_ns()", "(time.monotonic_ns() - start) * 1e9")}, True),
    (
        "MSR004",
        {"train.py": CLOCK % ("", "datetime.datetime.now()", "(datetime.datetime.now() - start).total_seconds()")},
        True,
    ),
    ("MSR004", {"train.py": EPOCHS % ("range(40)", "")}, False),  # one of forty figures
    ("MSR004", {"train.py": EPOCHS % ("range(1)", "")}, True),
    ("MSR004", {"train.py": EPOCHS % ("range(2)", INSIDE)}, True),  # the first epoch's figures all have it
    ("CKP002", {"train.py": KEEPS}, True),
    ("CKP002", {"train.py": KEEPS, "README.md": "Forty epochs take 11 minutes on a 3060.\n"}, False),
    ("CKP002", {"train.py": KEEPS, "run.sh": "# a run is done in about 20 min\npython train.py\n"}, False),
    ("CKP002", {"train.py": KEEPS, "README.md": "A run takes 11 hours.\n"}, True),
    ("CKP002", {"train.py": KEEPS, "README.md": "Training: 20 min warm-up, then 11 h.\nTraining takes 9 h.\n"}, True),
    ("CKP002", {"train.py": KEEPS, "README.md": "Preparing the features takes 11 minutes.\n"}, True),
    ("CKP002", {"train.py": ONCE % "", "job.sbatch": SLURM % ("72:00:00", "")}, True),
    ("CKP002", {"train.py": ONCE % "", "job.sbatch": SLURM % ("3-00:00:00", "# a run takes 60 to 65 hours")}, True),
    ("CKP002", {"train.py": ONCE % "", "README.md": "Training takes 3 days on one A100.\n"}, True),
    ("CKP002", {"train.py": ONCE % "", "go.pbs": "#PBS -l walltime=48:00:00\npython train.py\n"}, True),
    ("CKP002", {"train.py": ONCE % "", "job.sbatch": SLURM % ("72:00:00", "# training takes 3 hours")}, False),
    ("CKP002", {"train.py": ONCE % "", "job.sbatch": SLURM % ("720", "")}, True),  # minutes
    ("CKP002", {"train.py": ONCE % "", "job.sbatch": SLURM % ("02:00:00", "")}, False),
    ("CKP002", {"train.py": ONCE % "", "run.sh": "python train.py\n"}, False),
    (
        "CKP002",
        {"train.py": ONCE % "    keep(model, optimizer.state_dict())\n", "job.sbatch": SLURM % ("72:00:00", "")},
        False,
    ),
    ("DST052", {"train.py": RANKED % ("", "", f"max(1, {EACH} // accelerator.num_processes)")}, True),
    ("DST052", {"train.py": RANKED % ("", "", f"{EACH} // (2 * accelerator.num_processes)")}, True),
    ("DST052", {"train.py": RANKED % ("rows per GPU", "", "args.batch // accelerator.num_processes")}, True),
    ("DST052", {"train.py": RANKED % ("of a step", "", "args.batch // accelerator.num_processes")}, False),
    ("DST052", {"train.py": RANKED % ("", "split_batches=True", f"{EACH} // accelerator.num_processes")}, False),
    ("DST052", {"train.py": RANKED % ("", "", f"{EACH} // 2")}, False),
]


@pytest.mark.parametrize(("code", "files", "found"), SHAPES)
def test_found_and_not(code: str, files: dict[str, str], found: bool, tmp_path: Path) -> None:
    assert bool(audited(tmp_path, files, select=(code,)).findings) is found


@pytest.mark.parametrize(("code", "files"), [(code, files) for code, files, found in SHAPES if found])
def test_answered_for(code: str, files: dict[str, str], tmp_path: Path) -> None:
    """A comment above the line that a finding stands on takes it out, and nothing else."""
    (finding, *_) = audited(tmp_path / "before", files, select=(code,)).findings
    lines = files[finding.place.file].split("\n")
    at = lines[finding.place.line - 1]
    indent = at[: len(at) - len(at.lstrip())]
    lines.insert(finding.place.line - 1, f"{indent}# dynotune: ignore[{code}] it is meant so")
    after = audited(tmp_path / "after", {**files, finding.place.file: "\n".join(lines)}, select=(code,))
    assert not [one for one in after.findings if one.place.line == finding.place.line + 1]
    assert [one.finding.code for one in after.suppressed] == [code]


def test_the_text_of_a_notebook_counts(tmp_path: Path) -> None:
    """What a notebook's author writes between its cells says how many GPUs there are, as a README does."""
    code = (LOADS % ("", LARGE, "'auto'")).splitlines(keepends=True)
    for name, text, found in (("a", "**GPU T4 x2**: both cards train", True), ("b", "One card trains", False)):
        cells = [{"cell_type": "markdown", "source": [text]}, {"cell_type": "code", "source": code, "outputs": []}]
        said = audited(tmp_path / name, {"t.ipynb": json.dumps({"cells": cells})}, select=("DST004",)).findings
        assert [one.place.cell.partition(",")[0] for one in said] == ["cell 2"] * found
