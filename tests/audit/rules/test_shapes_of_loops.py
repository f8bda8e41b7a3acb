"""Promise: faults of own training loops are found in the shapes that repositories have them in, the nearest right thing is
not, and a comment that answers for one is taken."""

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

SHAPES = [
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
