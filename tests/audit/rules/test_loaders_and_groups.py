"""Promise: workers for rows in memory, batches made on the device, memory that a configuration leaves unpinned, ranks asked
for before there are any, layers spread where copies are described, and parts that a step leaves out are found; their
right twins are not."""

from pathlib import Path

import pytest

from tests.audit.made_up import audited


def says(tmp_path: Path, files: dict[str, str], code: str, part: str = "") -> bool:
    return any(one.code == code and part in one.message for one in audited(tmp_path, files).findings)


DATA = """import lightning as L
import torch
from torch.utils.data import DataLoader, Dataset
class Slices(Dataset):
    def __init__(self, text, ctx):
        self.t, self.ctx = {held}, ctx
    def __getitem__(self, i):
        return self.t[i : i + self.ctx]
class Chars(L.LightningDataModule):
    def __init__(self, path, workers={default}):
        super().__init__()
        self.save_hyperparameters()
    def train_dataloader(self):
        h = self.hparams
        return DataLoader(Slices(open(h.path).read(), 64), 128, num_workers=h.workers, pin_memory=True)
"""
BYTES = "torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8)"


@pytest.mark.parametrize(
    ("held", "default", "given", "is_useless"),
    [
        (BYTES, 0, "workers=10", True),
        (BYTES, 0, "workers=workers", True),
        (BYTES, 8, "", True),
        (BYTES, 0, "", False),
        (BYTES, 8, "workers=0", False),
    ],
)
def test_workers_of_a_data_module(tmp_path: Path, held: str, default: int, given: str, is_useless: bool) -> None:
    main = f"from data import Chars\ndef train(path='a.txt', workers=10):\n    fit(Chars(path, {given}))\n"
    files = {"data.py": DATA.format(held=held, default=default), "main.py": main}
    assert says(tmp_path, files, "HST051", "in memory") is is_useless


SONGS = """import numpy as np
import torch
from transformers import AutoModelForCausalLM, HfArgumentParser, Trainer, TrainingArguments
class Songs(torch.utils.data.Dataset):
    def __init__(self, path):
        self.ids = torch.from_numpy(np.load(path))
    def __getitem__(self, i):
        return {given}
(args,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()
model = AutoModelForCausalLM.from_pretrained("EleutherAI/pythia-70m")
Trainer(model, args, train_dataset=Songs("a.npy")).train()
"""


@pytest.mark.parametrize(
    ("given", "workers", "is_useless"),
    [
        ('{"input_ids": self.ids[i], "labels": self.ids[i]}', 16, True),
        ('{"input_ids": self.ids[i], "labels": self.ids[i]}', 2, False),
        ('{"input_ids": tokenizer(self.ids[i])}', 16, False),
    ],
)
def test_workers_under_the_trainers_own_collator(tmp_path: Path, given: str, workers: int, is_useless: bool) -> None:
    files = {"run.py": SONGS.format(given=given), "run.sh": f"python run.py --dataloader_num_workers {workers}\n"}
    assert says(tmp_path, files, "HST051", "in memory") is is_useless


FIT = """import hydra
import lightning as L
from torch.utils.data import DataLoader
@hydra.main(config_path="conf", config_name="a")
def main(c):
    train = DataLoader(rows, shuffle=True, {loader})
    L.Trainer(**c.trainer).fit(model, train)
"""


@pytest.mark.parametrize(
    ("loader", "pin", "where", "is_off"),
    [
        ("**c.loader", "false", "gpu", True),
        ("pin_memory=c.loader.pin_memory", "false", "gpu", True),
        ("pin_memory=False", "true", "gpu", True),
        ("**c.loader", "true", "gpu", False),
        ("**c.loader", "false", "cpu", False),
        ("**c.valid", "false", "gpu", False),
    ],
)
def test_pinned_memory_of_a_configuration(tmp_path: Path, loader: str, pin: str, where: str, is_off: bool) -> None:
    config = f"loader:\n  batch_size: 16\n  num_workers: 8\n  pin_memory: {pin}\ntrainer:\n  accelerator: {where}\n"
    assert says(tmp_path, {"fit.py": FIT.format(loader=loader), "conf/a.yaml": config}, "HST053") is is_off


FEED = """import torch
def feed(rows, device):
    for i in range(0, len(rows), 16):
        ids = pad(rows[i : i + 16])
        yield {given}
"""
FED = """import torch
from feed import feed
{more}
opt = torch.optim.AdamW(model.cuda().parameters(), lr=1e-4)
for ids in feed(rows, "cuda"):
    loss = model(ids).loss
    loss.backward()
    opt.step()
    opt.zero_grad()
"""


@pytest.mark.parametrize(
    ("given", "more", "waits"),
    [
        ("torch.tensor(ids, device=device)", "", True),
        ("torch.tensor(ids).cuda()", "", True),
        ("torch.tensor(ids).to(device)", "", True),
        ("torch.tensor(ids)", "", False),
        ("torch.tensor(ids).pin_memory().to(device, non_blocking=True)", "", False),
        ("torch.tensor(ids, device=device)", "from prefetch import Prefetcher", False),
    ],
)
def test_batches_made_on_the_device(tmp_path: Path, given: str, more: str, waits: bool) -> None:
    files = {"feed.py": FEED.format(given=given), "train.py": FED.format(more=more)}
    assert says(tmp_path, files, "HST053", "prepared ahead") is waits


MAIN = """import typer
import torch.distributed as dist
from loaders import make_loader
def main(batch: int = 8):
    {first}
    {then}
    train(loader)
if __name__ == "__main__":
    {run}
"""
LOADERS = """from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler
def make_loader(batch):
    return DataLoader(rows, batch, sampler=DistributedSampler(rows{ranks}))
"""
INIT, LOAD = 'dist.init_process_group("nccl")', "loader = make_loader(batch)"


@pytest.mark.parametrize("run", ["main()", "typer.run(main)"])
@pytest.mark.parametrize(
    ("first", "then", "ranks", "is_early"),
    [
        (LOAD, INIT, "", True),
        (INIT, LOAD, "", False),
        (LOAD, INIT, ", num_replicas=4, rank=0", False),
    ],
)
def test_a_sampler_before_the_group(
    tmp_path: Path, run: str, first: str, then: str, ranks: str, is_early: bool
) -> None:
    files = {"main.py": MAIN.format(first=first, then=then, run=run), "loaders.py": LOADERS.format(ranks=ranks)}
    files["run.sh"] = "torchrun --nproc_per_node=2 main.py\n"
    assert says(tmp_path, files, "DST051", "asks for the number of ranks") is is_early


ASKED = "dist.get_world_size() if dist.is_initialized() else 1"


@pytest.mark.parametrize(
    ("settings", "run", "is_early"),
    [
        (f"class S:\n    world: int = {ASKED}\n", "from settings import S\ndist.init_process_group()\nS()\n", True),
        (f"def accum(world={ASKED}):\n    pass\n", "from settings import accum\ndist.init_process_group()\n", True),
        (
            f"class S:\n    def world(self):\n        return {ASKED}\n",
            "from settings import S\ndist.init_process_group()\n",
            False,
        ),
        (f"class S:\n    world: int = {ASKED}\n", "dist.init_process_group()\nfrom settings import S\nS()\n", False),
    ],
)
def test_asked_when_a_class_is_loaded(tmp_path: Path, settings: str, run: str, is_early: bool) -> None:
    head = "import torch.distributed as dist\n"
    assert says(tmp_path, {"settings.py": head + settings, "run.py": head + run}, "DST051", "is loaded") is is_early


SPREAD = """from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-3B", device_map={map})
Trainer(model, TrainingArguments(output_dir="out"), train_dataset=rows).train()
"""


@pytest.mark.parametrize(
    ("text", "given", "command", "is_wrong"),
    [
        ("Trains on four GPUs, data parallel.", '"auto"', "python train.py", True),
        ("Every card holds a copy and sees 8 rows.", '"auto"', "python train.py", True),
        ("The layers are spread over four GPUs; no data parallelism.", '"auto"', "python train.py", False),
        ("Trains on four GPUs, data parallel.", "None", "python train.py", False),
        ("Trains on four GPUs.", '"auto"', "python train.py", False),
    ],
)
def test_copies_that_a_document_describes(tmp_path: Path, text: str, given: str, command: str, is_wrong: bool) -> None:
    files = {"train.py": SPREAD.format(map=given), "run.sh": f"{command}\n", "README.md": f"# lm\n\n{text}\n"}
    assert says(tmp_path, files, "DST001", "copy of the model") is is_wrong


HEADS = """from torch import nn
class Two(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(8, 8)
        self.score = nn.Linear(8, 1)
        self.label = nn.Linear(8, 4)
    def forward(self, x, task):
        h = self.body(x)
        {body}
"""
WRAPPED = """import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from heads import Two
dist.init_process_group("nccl")
net = DDP(Two().cuda(){more})
for x, task in loader:
    net(x, task).backward()
    opt.step()
    opt.zero_grad()
"""
EITHER = 'if task == "score":\n            return self.score(h)\n        return self.label(h)'
BOTH = 'a, b = self.score(h), self.label(h)\n        if task == "score":\n            return a\n        return b'


@pytest.mark.parametrize(
    ("body", "more", "stops"),
    [
        (EITHER, "", True),
        (
            "if task == 0:\n            y = self.score(h)\n        else:\n            y = self.label(h)\n        return y",
            "",
            True,
        ),
        (EITHER, ", find_unused_parameters=True", False),
        (BOTH, "", False),
        ("return self.label(h) + self.score(h)", "", False),
    ],
)
def test_one_head_a_step(tmp_path: Path, body: str, more: str, stops: bool) -> None:
    files = {"heads.py": HEADS.format(body=body), "train.py": WRAPPED.format(more=more)}
    assert says(tmp_path, files, "DST002", "second step") is stops


@pytest.mark.parametrize(
    ("name", "more", "is_needless"),
    [
        ("openai/gsm8k", ", trust_remote_code=True", True),
        ("json", ", data_files='a.json', trust_remote_code=True", True),
        ("openai/gsm8k", "", False),
        ("acme/with-a-script", ", trust_remote_code=True", False),
    ],
)
def test_code_of_a_data_set(tmp_path: Path, name: str, more: str, is_needless: bool) -> None:
    text = f'from datasets import load_dataset\nrows = load_dataset("{name}"{more})\n'
    assert says(tmp_path, {"train.py": text}, "CKP053", "plain files") is is_needless
