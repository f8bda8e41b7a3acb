"""Promise: a fault is found in whatever file of a program it stands, and the nearest right thing is not called one."""

from pathlib import Path

import pytest

from tests.audit.made_up import audited

LOOP = (
    "import torch\nfrom other import *\nimport other\nmodel = model.cuda()\noptimizer = other.optimizer(model, 1e-5)\n"
    "for batch in other.rows():\n    model(**batch).loss.backward()\n    optimizer.step()\n    optimizer.zero_grad()\n"
)
OPTIMIZER = (
    "import torch\ndef optimizer(model, lr):\n    more = {'weight_decay': 0.1%s}\n"
    "    return %s(model.parameters(), lr=lr, **more)\n"
)
GETATTR = (
    "import torch\nfrom torch import optim\nNAME = '%s'\ndef optimizer(model, lr):\n    kind = getattr(optim, NAME)\n"
    "    return kind(model.parameters(), lr=lr)\n"
)
LIT = (
    "import torch\nimport lightning as L\nclass Lit(L.LightningModule):\n    def training_step(self, batch, i):\n"
    "        return self.model(**batch).loss\n    def configure_optimizers(self):\n"
    "        return torch.optim.AdamW(self.parameters(), lr=1e-5%s)\nL.Trainer(accelerator='gpu').fit(Lit(), rows)\n"
)
HANDED = (
    "import torch\nfrom transformers import Trainer, TrainingArguments\n"
    "optimizer = torch.optim.AdamW(model.parameters()%s)\n"
    "Trainer(model, TrainingArguments('o', bf16=True), optimizers=(optimizer, None), train_dataset=d).train()\n"
)
ROWS = (
    "import random\nfrom torch.utils.data import DataLoader\ndef rows():\n    data = read()\n%s"
    "    return DataLoader(data%s)\n"
)
SPLIT = (
    "from datasets import load_dataset\nfrom transformers import Trainer, TrainingArguments\n%s"
    "parts = load_dataset('json', data_files='d.jsonl')['train'].train_test_split(test_size=0.1%s)\n"
    "Trainer(m, TrainingArguments('o', bf16=True), train_dataset=parts['train'], eval_dataset=parts['test']).train()\n"
)
CONFIG = (
    "from dataclasses import dataclass\n@dataclass\nclass Config:\n    target_batch: int = 256\n    device_batch: int = 8\n"
    "    @property\n    def grad_accum(self):\n        return self.target_batch // self.device_batch%s\n"
)
DDP = "from torch.nn.parallel import DistributedDataParallel as DDP\nfrom config import Config\nmodel = DDP(model)\n%s"
HELPER = "def accumulation_steps(effective, per_device%s):\n    return max(1, effective // %s)\n"
USES = "from helper import accumulation_steps\nsteps = accumulation_steps(128, 4)\n"
FOUR = {"run.sh": "torchrun --nproc_per_node 4 train.py\n"}
ASKS = (
    "import torch.distributed as dist\nfrom start import begin\n\n\nclass Config:\n    def __init__(self):\n"
    "        self.ranks = %s\n\n\ndef main():\n    %s\n    %s\n\n\nif __name__ == '__main__':\n    main()\n"
)
START = "import torch.distributed as dist\ndef begin():\n    dist.init_process_group('nccl')\n"
SIZE = "dist.get_world_size()"
JOB = "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=%d\n#SBATCH --gres=gpu:4\n%ssrun %s --accumulation $ACC\n"
SUM = "ACC=$(( 256 / 4 / ${WORLD_SIZE:-1} ))\n"
TORCHRUN = "torchrun --nnodes 2 --nproc_per_node $SLURM_GPUS_ON_NODE train.py"
TASKS = "import os\nworld_size = int(os.environ['SLURM_NTASKS'])\naccumulation = 256 // (4 * world_size)\n"
HF = "from transformers import AutoModelForCausalLM\nmodel = AutoModelForCausalLM.from_pretrained('gpt2')\n"
KEEPS = "import torch, pickle\nimport train\ndef keep(model, path):\n    %s\n"
TRAINS = f"{HF}from keeps import keep\nkeep(model, 'out')\n"
STATE = "state = {k: v.cpu() for k, v in model.state_dict().items()}\n    torch.save(state, path)"
TRAINER = (
    "from transformers import Trainer, TrainingArguments\n"
    "trainer = Trainer(m, TrainingArguments('o', save_steps=50), None)\n"
    "trainer.train(%s)\n"
)
REQUEUED = "#!/bin/bash\n#SBATCH --gres=gpu:1\n#SBATCH --requeue\npython train.py%s\n"
UNTIL = "until python train.py; do sleep 5; done\n"
SAVES = LOOP + "    if step % 100 == 0:\n        save(model, f'out/{step}')\n"
SAVE = "def optimizer(m, lr): ...\ndef rows(): ...\ndef save(model, path):\n    model.save_pretrained(path)\n%s"
PAIRS = (
    "import torch\nimport torch.nn.functional as F\nclass Step:\n    def __init__(self, policy, reference):\n"
    "        self.policy, self.%s = policy, reference\n    def __call__(self, batch):\n"
    "        chosen = scored(self.policy, batch)\n        with torch.no_grad():\n"
    "            kept = scored(self.%s, batch)\n        return -F.logsigmoid(chosen - kept).mean()\n"
)
STEPS = (
    "from step import Step\nstep = Step(policy, reference)\nfor batch in loader:\n    step(batch).backward()\n"
    "    optimizer.step()\n    optimizer.zero_grad()\n"
)
LOADED = "from transformers import AutoModelForCausalLM\nbase = AutoModelForCausalLM.from_pretrained('m')\n%s"
SCORED = (
    "import torch\nfor batch in loader:\n    chosen = logps(model, batch['chosen'])\n    with torch.no_grad():\n"
    "        kept = logps(base, batch['chosen'])\n    (chosen - kept).backward()\n    optimizer.step()\n"
)
DPO = (
    "from transformers import AutoModelForCausalLM\nfrom peft import LoraConfig\nfrom trl import DPOConfig, DPOTrainer\n"
    "model = AutoModelForCausalLM.from_pretrained('%s')\nref_model = AutoModelForCausalLM.from_pretrained('%s')\n"
    "DPOTrainer(model, ref_model=ref_model, args=DPOConfig(output_dir='o', num_train_epochs=1), train_dataset=d%s)\n"
)
PEFT = ", peft_config=LoraConfig(r=8)"
SORTS = (
    "rows = []\nfor d in runs:\n    rows.append((d['%s'], d['batch_size']))\nrows.sort(reverse=True)\nprint(rows[0])\n"
)
BEATS = (
    "for batch_size in (1, 2, 4):\n    one = run(batch_size)\n    if best is None or one.%s > best.%s:\n"
    "        best = one\n"
)
NOTED = "# Notes\n\n| micro_batch | %s |\n|---|---|\n| 1 | 4.1 |\n| 8 | 1.2 |\n\n%s\n"
LESS = "We went from micro_batch_size 8 to 1, from 0.9 it/s to 5.2 it/s%s.\n"
SWEEP = (
    "import time, torch\nmodel = model.cuda()\n%sstart = time.perf_counter()\nfor _ in range(20):\n"
    "    model(ids).loss.backward()\n    optimizer.step()\ntorch.cuda.synchronize()\n"
    "print('steps a second', steps / (time.perf_counter() - start))\n"
)
WARM = "for _ in range(3):\n    model(ids).loss.backward()\n    optimizer.step()\n"
COUNTS = (
    "class Counting(Trainer):\n    def training_step(self, model, inputs):\n"
    "        self.meter.tokens += inputs['input_ids'].%s\n"
)
METER = (
    "import counts\nfrom transformers import DataCollatorWithPadding\ncollate = DataCollatorWithPadding(tok)\n"
    "def speed(self):\n    return {'tokens_per_second': self.tokens / spent}\n"
)
UPPER = "8 x %d x 3.1 it/s = 50.8k tokens/s\n"
NOT_PACKED = "model_name_or_path: Qwen/Qwen2.5-0.5B\ndataset_name: d.jsonl\nmax_length: 2048\npacking: %s\n"
OPTIONS = (
    "from dataclasses import asdict, dataclass\n@dataclass\nclass Config:\n    lr: float = 1e-5\n    clip: float = 1.0\n"
    "    size: int = 4\n%s"
)
READS = (
    "from options import Config\ncfg = Config()\nfor batch in rows(cfg.size):\n    model(**batch).loss.backward()\n"
    "    %s\n    optimizer.step()\nset_rate(cfg.lr)\n"
)
OWN_YAML = {"conf/small.yaml": "model: a/b\nlr: 1.0e-5\n", "conf/large.yaml": "model: a/c\nlr: 2.0e-5\n"}
OPENS = "import sys, yaml\ncfg = yaml.safe_load(open(sys.argv[1]))\nprint(cfg['model'], cfg['lr'])\n%s"
STAGES = {"ds/z2.json": '{"zero_optimization": {"stage": 2}}', "ds/z3.json": '{"zero_optimization": {"stage": 3}}'}
DEEP = (
    "from transformers import Trainer, TrainingArguments\n"
    "Trainer(m, TrainingArguments('o', bf16=True, deepspeed='ds/z3.json'), train_dataset=d).train()\n%s"
)
SMALL = {"run.sh": "python train.py conf/small.yaml\n"}


@pytest.mark.parametrize(
    ("code", "files", "file"),
    [
        ("OPT001", {"train.py": LOOP, "other.py": OPTIMIZER % ("", "torch.optim.AdamW")}, "other.py"),
        ("OPT001", {"train.py": LOOP, "other.py": GETATTR % "AdamW"}, "other.py"),
        ("OPT001", {"train.py": LIT % ""}, "train.py"),
        ("OPT001", {"train.py": HANDED % ""}, "train.py"),
        ("MSR003", {"train.py": LOOP, "other.py": ROWS % ("", ", shuffle=True")}, "other.py"),
        ("MSR003", {"train.py": LOOP, "other.py": ROWS % ("    random.shuffle(data)\n", "")}, "other.py"),
        ("DST052", {"train.py": DDP % "", "config.py": CONFIG % ""}, "config.py"),
        ("DST052", {"train.py": USES, "helper.py": HELPER % ("", "per_device"), **FOUR}, "helper.py"),
        ("DST051", {"train.py": ASKS % (SIZE, "Config()", "begin()"), "start.py": START}, "train.py"),
        ("DST051", {"train.py": "import sys\n", "job.sbatch": JOB % (1, SUM, TORCHRUN)}, "job.sbatch"),
        ("DST051", {"train.py": TASKS, "job.sbatch": JOB % (1, "ACC=4\n", TORCHRUN)}, "train.py"),
        ("CKP051", {"train.py": TRAINS, "keeps.py": KEEPS % "torch.save(model.state_dict(), path)"}, "keeps.py"),
        ("CKP051", {"train.py": TRAINS, "keeps.py": KEEPS % STATE}, "keeps.py"),
        ("CKP051", {"train.py": TRAINS, "keeps.py": KEEPS % "pickle.dump(model.cpu(), open(path, 'wb'))"}, "keeps.py"),
        ("CKP051", {"train.py": f"{HF}import torch\ntorch.save(engine.module.state_dict(), 'm.pt')\n"}, "train.py"),
        ("CKP002", {"train.py": TRAINER % "", "job.sbatch": REQUEUED % ""}, "train.py"),
        ("CKP002", {"train.py": TRAINER % "", "run.sh": UNTIL}, "train.py"),
        ("CKP002", {"train.py": SAVES, "other.py": SAVE % ""}, "train.py"),
        ("DPO001", {"train.py": STEPS, "step.py": PAIRS % ("reference", "reference")}, "step.py"),
        ("DPO001", {"train.py": LOADED % "base.requires_grad_(False)\n" + SCORED}, "train.py"),
        ("DPO001", {"train.py": DPO % ("a/b", "a/b", PEFT)}, "train.py"),
        ("MSR005", {"best.py": SORTS % "train_steps_per_second"}, "best.py"),
        ("MSR005", {"best.py": BEATS % ("steps_per_sec", "steps_per_sec")}, "best.py"),
        ("MSR005", {"a.py": "", "NOTES.md": NOTED % ("it/s", "We stay with 1, by far the fastest.")}, "NOTES.md"),
        ("MSR005", {"a.py": "", "README.md": LESS % ", five times faster"}, "README.md"),
        ("MSR004", {"bench.py": SWEEP % ""}, "bench.py"),
        ("MSR001", {"meter.py": METER, "counts.py": COUNTS % "numel()"}, "counts.py"),
        ("MSR001", {"README.md": UPPER % 2048, "sft.yaml": NOT_PACKED % "false"}, "README.md"),
        ("CFG017", {"train.py": READS % "pass", "options.py": OPTIONS % ""}, "options.py"),
        ("CFG010", {"train.py": OPENS % "", **OWN_YAML, **SMALL}, "conf/large.yaml"),
        ("CFG010", {"train.py": DEEP % "", **STAGES}, "ds/z2.json"),
        ("MSR003", {"train.py": SPLIT % ("SEED = 3  # seed(s)\n", "")}, "train.py"),
    ],
)
def test_found(tmp_path: Path, code: str, files: dict[str, str], file: str) -> None:
    findings = [one for one in audited(tmp_path, files, select=(code,)).findings if one.code == code]
    assert [one.place.file for one in findings] == [file]


@pytest.mark.parametrize(
    ("code", "files"),
    [
        ("OPT001", {"train.py": LOOP, "other.py": OPTIMIZER % (", 'fused': True", "torch.optim.AdamW")}),
        ("OPT001", {"train.py": LOOP, "other.py": OPTIMIZER % ("", "torch.optim.SGD")}),
        ("OPT001", {"train.py": LOOP, "other.py": GETATTR % "SGD"}),
        ("OPT001", {"train.py": LIT % ", fused=True"}),
        ("OPT001", {"train.py": HANDED % ", foreach=True"}),
        ("OPT001", {"train.py": "import torch\nopt = torch.optim.AdamW(p)\n"}),
        ("MSR003", {"train.py": LOOP, "other.py": ROWS % ("    random.seed(1)\n", ", shuffle=True")}),
        ("MSR003", {"train.py": LOOP, "other.py": ROWS % ("", ", shuffle=True, generator=g")}),
        (
            "MSR003",
            {"run.py": "import train\nfix_seed(3)\n", "train.py": LOOP, "other.py": ROWS % ("", ", shuffle=True")},
        ),
        ("MSR003", {"train.py": LOOP, "other.py": ROWS % ("", "")}),
        ("DST052", {"train.py": DDP % "", "config.py": CONFIG % " // world_size"}),
        ("DST052", {"train.py": DDP % "steps = cfg.grad_accum // world_size\n", "config.py": CONFIG % ""}),
        ("DST052", {"train.py": USES, "helper.py": HELPER % ("", "per_device")}),
        ("DST052", {"train.py": USES, "helper.py": HELPER % (", world", "(per_device * world)"), **FOUR}),
        ("DST052", {"train.py": USES, "helper.py": HELPER % (", n", "(per_device * n)"), **FOUR}),
        ("DST051", {"train.py": ASKS % (SIZE, "begin()", "Config()"), "start.py": START}),
        (
            "DST051",
            {"train.py": ASKS % (f"{SIZE} if dist.is_initialized() else 1", "Config()", "begin()"), "start.py": START},
        ),
        ("DST051", {"train.py": ASKS % (SIZE, "setup()", "Config()"), "start.py": START}),
        ("DST051", {"train.py": "import sys\n", "job.sbatch": JOB % (1, f"WORLD_SIZE=8\n{SUM}", TORCHRUN)}),
        ("DST051", {"train.py": TASKS, "job.sbatch": JOB % (4, "ACC=4\n", "python train.py")}),
        ("CKP051", {"train.py": TRAINS, "keeps.py": KEEPS % "torch.save({'m': model.state_dict(), 'o': o}, path)"}),
        ("CKP051", {"train.py": f"{TRAINS}model.save_pretrained('x')\n", "keeps.py": KEEPS % STATE}),
        ("CKP051", {"train.py": TRAINS, "keeps.py": KEEPS % "pickle.dump(metrics, open(path, 'wb'))"}),
        ("CKP051", {"keeps.py": KEEPS % STATE}),
        ("CKP002", {"train.py": TRAINER % "resume_from_checkpoint=last", "job.sbatch": REQUEUED % ""}),
        ("CKP002", {"train.py": TRAINER % "", "run.sh": "python train.py\n"}),
        ("CKP002", {"train.py": SAVES, "other.py": SAVE % "    torch.save(opt.state_dict(), path)\n"}),
        ("CKP002", {"train.py": SAVES.replace("save(model", "show(model"), "other.py": SAVE % ""}),
        ("DPO001", {"train.py": STEPS, "step.py": PAIRS % ("sibling", "sibling")}),
        ("DPO001", {"step.py": PAIRS % ("reference", "reference")}),
        ("DPO001", {"train.py": LOADED % "" + SCORED}),
        ("DPO001", {"train.py": DPO % ("a/b", "a/c", PEFT)}),
        ("DPO001", {"train.py": DPO % ("a/b", "a/b", "")}),
        ("MSR005", {"best.py": SORTS % "train_samples_per_second"}),
        ("MSR005", {"best.py": SORTS.replace("rows.sort(reverse=True)\n", "") % "train_steps_per_second"}),
        ("MSR005", {"best.py": BEATS % ("rows_per_s", "rows_per_s")}),
        ("MSR005", {"a.py": "", "NOTES.md": NOTED % ("it/s", "An epoch takes 3 h with 4.")}),
        ("MSR005", {"a.py": "", "NOTES.md": NOTED % ("it/s", "In tokens/s 8 is the fastest.")}),
        ("MSR005", {"a.py": "", "README.md": LESS % " (9k and 6k tokens/s), which is slower"}),
        ("MSR004", {"bench.py": SWEEP % WARM}),
        ("MSR001", {"meter.py": METER, "counts.py": COUNTS % "ne(pad).sum()"}),
        ("MSR001", {"meter.py": METER.replace("DataCollatorWithPadding", "Packs"), "counts.py": COUNTS % "numel()"}),
        ("MSR001", {"README.md": UPPER % 2048, "sft.yaml": NOT_PACKED % "true"}),
        ("MSR001", {"README.md": UPPER % 1024, "sft.yaml": NOT_PACKED % "false"}),
        ("CFG017", {"train.py": READS % "clip(cfg.clip)", "options.py": OPTIONS % ""}),
        ("CFG017", {"train.py": READS % "pass", "options.py": OPTIONS % "def rest(cfg):\n    return asdict(cfg)\n"}),
        ("CFG017", {"train.py": "from options import Config\nprint(Config().lr)\n", "options.py": OPTIONS % ""}),
        ("CFG010", {"train.py": OPENS % "", **OWN_YAML, "run.sh": "python train.py conf/$1.yaml\n"}),
        ("CFG010", {"train.py": OPENS % "# or conf/large.yaml\n", **OWN_YAML, **SMALL}),
        ("CFG010", {"train.py": DEEP % "# ds/z2.json on small machines\n", **STAGES}),
        ("MSR003", {"train.py": SPLIT % ("", ", seed=3")}),
        ("MSR003", {"train.py": SPLIT % ("from transformers import set_seed\nset_seed(1)\n", "")}),
    ],
)
def test_left_alone(tmp_path: Path, code: str, files: dict[str, str]) -> None:
    assert not [one for one in audited(tmp_path, files, select=(code,)).findings if one.code == code]


def test_two_programs_that_share_a_module_are_not_one(tmp_path: Path) -> None:
    """A benchmark that sets a seed is no word on the training that imports the same model."""
    files = {
        "train.py": f"import shared\n{LOOP}",
        "other.py": ROWS % ("", ", shuffle=True"),
        "shared.py": "",
        "bench.py": "import torch, shared\ntorch.manual_seed(0)\n",
    }
    assert [one.place.file for one in audited(tmp_path, files, select=("MSR003",)).findings] == ["other.py"]


def test_slurm_says_how_many_gpus_a_node_has(tmp_path: Path) -> None:
    (job,) = audited(tmp_path, {"train.py": LOOP, "other.py": "", "job.sbatch": JOB % (1, "", TORCHRUN)}).project.jobs
    assert job.get("num_processes") == 8


JOB_OF_A_LAUNCHER = "#!/bin/bash\n#SBATCH --gres=gpu:4\n{again}source env.sh\nsrun bash scripts/run.sh\n"
RUNS = "torchrun --nproc_per_node 4 train.py\n"
GOES = (
    "from transformers import AutoModelForCausalLM, Trainer, TrainingArguments\n"
    "model = AutoModelForCausalLM.from_pretrained('Qwen/Qwen2.5-0.5B')\n"
    "trainer = Trainer(model=model, args=TrainingArguments('o', save_steps=100), train_dataset=d)\n"
    "trainer.train({resume})\n"
)


@pytest.mark.parametrize(
    ("again", "resume", "named", "found"),
    [
        ("#SBATCH --requeue\n", "", "run.sh", True),
        ("#SBATCH --requeue\n", "resume_from_checkpoint=True", "run.sh", False),
        ("", "", "run.sh", False),
        ("#SBATCH --requeue\n", "", "other.sh", False),
    ],
)
def test_a_job_file_that_runs_the_launcher_is_started_again(
    tmp_path: Path, again: str, resume: str, named: str, found: bool
) -> None:
    files = {
        "job.sbatch": JOB_OF_A_LAUNCHER.format(again=again).replace("run.sh", named),
        "scripts/run.sh": RUNS,
        "train.py": GOES.format(resume=resume),
    }
    codes = [one.code for one in audited(tmp_path, files).findings]
    assert ("CKP002" in codes) is found
