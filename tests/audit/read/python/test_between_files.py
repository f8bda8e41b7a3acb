"""Promise: values are followed between files: to who calls a function, to the class of a parameter, to who trains."""

from pathlib import Path

import pytest

from tests.audit.made_up import audited

LOADS = (
    "from transformers import AutoModelForCausalLM\ndef load(name, **more):\n    held = {'device_map': 'auto', **more}\n"
    "    return AutoModelForCausalLM.from_pretrained(name, **held)\n"
)
LOADER = (
    "from torch.utils.data import DataLoader\ndef rows(size):\n"
    "    return DataLoader(data, batch_size=size, num_workers=3)\n"
)
STEPS = "    for batch in rows(cfg.size):\n        model(**batch).loss.backward()\n        optimizer.step()\n"
FIT = "import torch\nfrom loader import rows\ndef fit(model, optimizer, cfg%s):\n" + STEPS
MAIN = (
    "import torch\nfrom torch.nn.parallel import DistributedDataParallel as DDP\nfrom engine import fit\n"
    "from load import load\nfrom settings import Config\nmodel = DDP(load('Qwen/Qwen2.5-7B'))\n"
    "optimizer = torch.optim.AdamW(model.parameters(), lr=3e-5)\nfit(model, optimizer, Config(size=6))\n"
)
CONFIG = "from dataclasses import dataclass\n@dataclass\nclass Config:\n    size: int = 4\n"
RUN = "torchrun --nproc_per_node 4 main.py\n"
FILES = {"load.py": LOADS, "loader.py": LOADER, "settings.py": CONFIG, "main.py": MAIN, "run.sh": RUN}


def test_a_loop_is_one_job_with_what_other_files_make_for_it(tmp_path: Path) -> None:
    """The model, the optimizer, the loader and the number of processes each stand in a file of their own."""
    result = audited(tmp_path, {**FILES, "engine.py": FIT % ""})
    (job,) = result.project.jobs
    assert job.get("num_processes") == 4
    assert job.get("learning_rate") == 3e-5
    assert job.get("dataloader_num_workers") == 3
    assert job.get("device_map") == "auto"
    assert job.get("model_name_or_path") == "Qwen/Qwen2.5-7B"
    assert {"run.sh", "main.py", "engine.py", "load.py"} <= set(job.files)
    assert [one.code for one in result.findings].count("DST001") == 1


def test_the_class_of_a_parameter_gives_its_defaults(tmp_path: Path) -> None:
    annotated = f"from settings import Config\n{FIT % ''}".replace("cfg)", "cfg: Config)").replace(
        "rows(", "torch.rows("
    )
    loader = "    data = torch.utils.data.DataLoader(d, batch_size=cfg.size)\n"
    text = annotated.replace(STEPS, loader + STEPS.replace("torch.rows(cfg.size)", "data"))
    text = text.replace("torch.rows(cfg.size)", "data").replace("    for", loader + "    for")
    (job,) = audited(tmp_path, {"engine.py": text, "settings.py": CONFIG}).project.jobs
    assert job.get("per_device_train_batch_size") == 4


@pytest.mark.parametrize("other", ["second.py", "engine.py"])
def test_of_two_that_make_things_none_is_taken(tmp_path: Path, other: str) -> None:
    """A control: two files start the loop, with other rates; or a file of the same loop's own says it."""
    second = MAIN.replace("3e-5", "1e-5")
    files = {**FILES, "engine.py": FIT % "", "second.py": second}
    if other == "engine.py":
        files = {**files, "engine.py": f"{FIT % ''}optimizer = torch.optim.SGD(p, lr=0.5)\n"}
    rates = {job.get("learning_rate") for job in audited(tmp_path, files).project.jobs}
    assert rates == ({0.5} if other == "engine.py" else {None})


def test_a_part_of_a_dictionary_that_is_not_known_leaves_the_rest(tmp_path: Path) -> None:
    text = (
        "import sys\nfrom transformers import Trainer, TrainingArguments\ndef run(**more):\n"
        "    held = dict(output_dir='o', bf16=True, **more)\n    held |= {'learning_rate': 2e-5}\n"
        "    Trainer(model=m, args=TrainingArguments(**held), train_dataset=d).train()\n"
    )
    (job,) = audited(tmp_path, {"train.py": text}).project.jobs
    assert job.get("learning_rate") == 2e-5
    assert job.get("bf16") is True
    assert job.get("num_train_epochs") is None  # it may come by `more`


OVERRIDDEN = (
    "from transformers import Trainer, TrainingArguments\n"
    "BASE = dict(output_dir='o', optim='adamw_torch', learning_rate=2e-5)\n"
    "def run(data, **more):\n    args = TrainingArguments(**%s)\n    Trainer(model=m, args=args, train_dataset=d).train()\n"
)
FIRED = "import fire\nfire.Fire(run)\n"
STARTS = "import fire\nfrom train import run\nfire.Fire(run)\n"


@pytest.mark.parametrize("joined", ["{**BASE, **more}", "dict(BASE, **more)", "(BASE | more)"])
@pytest.mark.parametrize("apart", [False, True])
def test_what_a_command_of_fire_gives_beside_parameters_is_the_rest(tmp_path: Path, joined: str, apart: bool) -> None:
    """`def run(data, **more)` under `fire.Fire(run)`, in its file or in one that imports it: nothing is overridden but
    what the command says."""
    own = OVERRIDDEN % joined
    files = {"train.py": own, "main.py": STARTS} if apart else {"train.py": own + FIRED}
    start = "main.py" if apart else "train.py"
    (plain,) = audited(tmp_path / "a", {**files, "run.sh": f"python {start} --data d.jsonl\n"}).project.jobs
    assert (plain.get("optim"), plain.get("learning_rate")) == ("adamw_torch", 2e-5)
    (told,) = audited(
        tmp_path / "b", {**files, "run.sh": f"python {start} --data d --learning_rate 1e-4\n"}
    ).project.jobs
    assert (told.get("optim"), told.get("learning_rate")) == ("adamw_torch", 1e-4)


@pytest.mark.parametrize("start", ["", "python main.py --data d --optim adafactor\npython main.py --data d\n"])
def test_the_rest_is_not_known_where_nobody_or_several_say_it(tmp_path: Path, start: str) -> None:
    files = {"train.py": OVERRIDDEN % "{**BASE, **more}", **({"main.py": STARTS, "run.sh": start} if start else {})}
    assert {job.get("optim") for job in audited(tmp_path, files).project.jobs} <= {None, "adafactor"}
