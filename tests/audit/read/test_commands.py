"""Promise: functions that click, typer or fire make commands of have their defaults, and what a launcher gives them."""

from pathlib import Path

import pytest

from dynotune.audit.facts.job import Job
from dynotune.audit.read.project import read_project
from dynotune.audit.schema import Schemas
from tests.audit.made_up import write

BODY = """
    model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-0.5B")
    args = TrainingArguments("out", per_device_train_batch_size=batch_size, bf16=bf16, max_steps=steps // 2, seed=1)
    Trainer(model=model, args=args, train_dataset=rows).train()


"""
IMPORTS = "from transformers import AutoModelForCausalLM, Trainer, TrainingArguments\n\n\n"
COMMANDS = {
    "click": (
        "import click\n" + IMPORTS + "@click.command()\n@click.option('--batch-size', default=8)\n"
        "@click.option('--bf16/--no-bf16', default=True)\n@click.option('-n', '--steps', default=100)\n"
        "def main(batch_size, bf16, steps):" + BODY + "main()\n"
    ),
    "typer": (
        "import typer\n" + IMPORTS + "def main(batch_size: int = typer.Option(8, help='rows'), bf16: bool = True,"
        " steps: int = 100):" + BODY + "typer.run(main)\n"
    ),
    "application": (
        "import typer\n" + IMPORTS + "app = typer.Typer()\n\n\n@app.command()\ndef main(batch_size: int = 8,"
        " bf16: bool = typer.Option(default=True), steps: int = 100):" + BODY + "app()\n"
    ),
    "fire": (
        "import fire\n" + IMPORTS + "def main(batch_size=8, *, bf16=True, steps=100):" + BODY + "fire.Fire(main)\n"
    ),
}


def job(folder: Path, train: str, command: str = "") -> Job:
    files = {"train.py": train, **({"run.sh": f"{command}\n"} if command else {})}
    (found,) = read_project(write(folder, files), schemas=Schemas.of()).jobs
    return found


@pytest.mark.parametrize("library", COMMANDS)
def test_defaults_and_what_a_launcher_gives(tmp_path: Path, library: str) -> None:
    train = COMMANDS[library]
    alone = job(tmp_path / "alone", train)
    assert (alone.get("per_device_train_batch_size"), alone.get("bf16"), alone.get("max_steps")) == (8, True, 50)
    dash = "--batch-size" if library in ("click", "typer") else "--batch_size"
    off = "--no-bf16" if library != "fire" else "--nobf16"
    given = job(tmp_path / "given", train, f"python train.py {dash} 32 {off} --steps 60")
    assert (given.get("per_device_train_batch_size"), given.get("bf16")) == (32, False)
    assert given.place("per_device_train_batch_size").file == "run.sh"
    assert given.get("max_steps") == 30  # worked out from the flag


@pytest.mark.parametrize(
    "train",
    [
        "import click\n" + IMPORTS + "@click.command()\n@click.option('--batch-size', required=True, type=int)\n"
        "@click.option('--bf16', is_flag=True)\n@click.option('--steps', default=4)\n"
        "def main(batch_size, bf16, steps):" + BODY + "main()\n",
        "import typer\n" + IMPORTS + "def main(batch_size: int = typer.Option(...), bf16: bool = False, steps: int = 4):"
        + BODY + "typer.run(main)\n",
    ],
)  # fmt: skip
def test_what_the_command_line_must_say_is_not_known(tmp_path: Path, train: str) -> None:
    alone = job(tmp_path / "alone", train)
    assert alone.get("per_device_train_batch_size") is None
    assert alone.get("bf16") is False
    given = job(tmp_path / "given", train, "python train.py --batch-size 4 --bf16")
    assert (given.get("per_device_train_batch_size"), given.get("bf16")) == (4, True)


SPAWNED = """import multiprocessing
import torch.multiprocessing as mp
from accelerate import notebook_launcher
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments


def work({parameters}):
    model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-0.5B")
    args = TrainingArguments("out", per_device_train_batch_size=batch, seed=1)
    Trainer(model=model, args=args, train_dataset=rows).train()


{start}
"""


@pytest.mark.parametrize(
    ("parameters", "start"),
    [
        ("rank, world, batch", "mp.spawn(work, args=(4, 16), nprocs=4)"),
        ("rank, batch", "mp.start_processes(work, (16,), nprocs=4)"),
        ("batch", "notebook_launcher(work, args=(16,), num_processes=2)"),
        ("rank, batch", "multiprocessing.Process(target=work, args=(0, 16)).start()"),
        ("rank, batch", "multiprocessing.Process(target=work, args=(0,), kwargs={'batch': 16}).start()"),
    ],
)
def test_arguments_of_processes(tmp_path: Path, parameters: str, start: str) -> None:
    found = job(tmp_path, SPAWNED.format(parameters=parameters, start=start))
    assert found.get("per_device_train_batch_size") == 16


def test_arguments_of_processes_that_are_not_known(tmp_path: Path) -> None:
    found = job(tmp_path, SPAWNED.format(parameters="rank, batch", start="mp.spawn(work, args=more, nprocs=4)"))
    assert found.get("per_device_train_batch_size") is None


CUTS = """from functools import partial
from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer, TrainingArguments

tokenizer = AutoTokenizer.from_pretrained("gpt2")
{rows}
args = TrainingArguments("out", seed=1)
Trainer(model=AutoModelForCausalLM.from_pretrained("gpt2"), args=args, train_dataset=rows).train()
"""
ENCODE = """
def encode(row{more}):
    ids = tokenizer(row["prompt"])["input_ids"] + tokenizer(row["answer"])["input_ids"]
    return {{"input_ids": ids[:{end}], "labels": ids[:{end}]}}
"""


@pytest.mark.parametrize(
    ("more", "end", "call", "length"),
    [
        (", max_len", "max_len", "rows = data.map(encode, fn_kwargs={'max_len': 768})", 768),
        (", max_len=512", "max_len", "rows = data.map(encode)", 512),
        (", max_len", "max_len", "rows = data.map(partial(encode, max_len=384))", 384),
        ("", "MAX_LEN", "MAX_LEN = 1024\nrows = data.map(encode)", 1024),
        (", max_len", "max_len", "rows = data.map(encode, fn_kwargs=words)", None),
        (", first", "first", "rows = data.map(encode, fn_kwargs={'first': 768})", None),  # another number
        (", max_len", "max_len", "rows = [encode(one, 256) for one in a] + [encode(one, 512) for one in b]", None),
    ],
)
def test_rows_that_are_cut_by_a_slice(tmp_path: Path, more: str, end: str, call: str, length: int | None) -> None:
    train = CUTS.format(rows=ENCODE.format(more=more, end=end) + call)
    assert job(tmp_path, train).get("max_length") == length


NAMED = """import sys

import yaml
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

cfg = yaml.safe_load(open(sys.argv[1]))
args = TrainingArguments("out", per_device_train_batch_size=cfg["batch"], seed=1)
Trainer(model=AutoModelForCausalLM.from_pretrained("gpt2"), args=args, train_dataset=rows).train()
"""


@pytest.mark.parametrize(
    ("readme", "run", "batches"),
    [
        ("# x\n\n    python train.py small.yaml\n", "", [4]),
        ("```bash\n$ python train.py large.yaml\n```\n", "", [64]),
        ("Start `train.py` with a configuration.\n", "", [None]),
        ("    python train.py small.yaml\n    python train.py large.yaml\n", "", [4, 64]),  # two runs
        ("    python train.py small.yaml\n", "python train.py large.yaml\n", [64]),  # a launcher goes before a document
    ],
)
def test_a_configuration_that_a_document_names(
    tmp_path: Path, readme: str, run: str, batches: list[int | None]
) -> None:
    files = {"train.py": NAMED, "small.yaml": "batch: 4\n", "large.yaml": "batch: 64\n", "README.md": readme}
    files |= {"run.sh": run} if run else {}
    jobs = read_project(write(tmp_path, files), schemas=Schemas.of()).jobs
    assert [one.get("per_device_train_batch_size") for one in jobs] == batches
