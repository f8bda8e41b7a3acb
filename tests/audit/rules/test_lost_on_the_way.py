"""Promise: what a launcher, a file or a script loses on the way is found, and the nearest thing that is not lost is not."""

from pathlib import Path

import pytest

from tests.audit.made_up import audited

TRAIN = (
    "import argparse\np = argparse.ArgumentParser()\np.add_argument('--lr', type=float, default=1e-5)\n"
    "p.add_argument('--bf16', action='store_true')\nargs = p.parse_args()\nprint(args.lr, args.bf16)\n"
)
AXOLOTL = (
    "base_model: Qwen/Qwen2.5-0.5B\ndatasets: [{{path: x, type: alpaca}}]\nmicro_batch_size: 2\nsequence_len: 2048\n{}"
)
TWO = {"a.yml": AXOLOTL.format(""), "b.yml": AXOLOTL.format("seed: 1\n")}
FIRE = "import fire\n\n\ndef train(lr=1e-5{}):\n    print(lr)\n\n\nfire.Fire(train)\n"
REST = (
    "from transformers import HfArgumentParser, TrainingArguments\nparser = HfArgumentParser((TrainingArguments,))\n"
    "args, {} = parser.parse_args_into_dataclasses(return_remaining_strings=True)\n{}"
)
JOB = "#!/bin/bash\n#SBATCH --nodes={}\n#SBATCH --gpus-per-node=4\n{}\n"
ACCELERATE = (
    "compute_environment: LOCAL_MACHINE\ndistributed_type: MULTI_GPU\nnum_machines: 1\nnum_processes: 4\n"
    "mixed_precision: bf16\n"
)
OPTIONS = (
    "import sys\nfrom dataclasses import dataclass, fields\nimport yaml\n\n\n@dataclass\nclass Options:\n"
    "    lr: float = 1e-5\n    epochs: int = 1\n    rows: int = 8\n\n\ndef load(path):\n"
    "    raw = yaml.safe_load(open(path))\n"
    "    {}\n\n\nopt = load(sys.argv[1])\nprint(opt.lr, opt.epochs, opt.rows)\n"
)
STRICT = OPTIONS.format("return Options(**raw)")
SECTION = OPTIONS.format("return Options(**raw['train'])")
FILTERS = OPTIONS.format("return Options(**{k: v for k, v in raw.items() if k in {f.name for f in fields(Options)}})")
SETS = OPTIONS.format(
    "made = Options()\n    for k, v in raw.items():\n        if hasattr(made, k):\n            setattr(made, k, v)\n"
    "    return made"
)
SPEAKS = OPTIONS.format(
    "extra = set(raw) - {f.name for f in fields(Options)}\n    if extra:\n        raise ValueError(extra)\n"
    "    return Options(**{k: v for k, v in raw.items() if k in {f.name for f in fields(Options)}})"
)
OWN = {"c.yaml": "lr: 1.0e-4\nepochs: 2\nrows: 4\nwarmup: 10\n", "r.sh": "python train.py c.yaml\n"}
MERGED = {
    "c.yaml": "train:\n  lr: 1.0e-5\n",
    "train.py": "import sys\nfrom omegaconf import OmegaConf\ncfg = OmegaConf.load(sys.argv[1])\n"
    "cfg = OmegaConf.merge(cfg, OmegaConf.from_cli(sys.argv[2:]))\nprint(cfg.train.lr, cfg.train.get('steps'))\n",
}
LAUNCHED = "accelerate launch --config_file {} train.py\n"
WARM = "python train.py --lr 1 --warm-up 3\n"
CLICK = (
    "import click\n\n\n@click.command()\n@click.option('--lr', default=1e-5)\n@click.option('--warm-up', default=0)\n"
    "def main(lr, warm_up):\n    print(lr, warm_up)\n    run(%s)\n\n\nmain()\n"
)
FACTORY = (
    "model_name_or_path: Qwen/Qwen2.5-0.5B\nstage: %s\ndo_train: true\nfinetuning_type: full\ndataset: a\n"
    "template: qwen\noutput_dir: o\npref_beta: 0.1\n"
)
RANKS = "export CUDA_VISIBLE_DEVICES=%s\nNPROC_PER_NODE=4 llamafactory-cli train lf.yaml\n"
EXPORT = "model_name_or_path: Qwen/Qwen2.5-0.5B\ntemplate: qwen\nfinetuning_type: lora\nexport_dir: m\n"


@pytest.mark.parametrize(
    ("code", "files", "found"),
    [
        ("CFG009", {"train.py": TRAIN, "r.sh": 'EXTRA="--bf16"\npython train.py --lr 1e-4\n'}, True),
        ("CFG009", {"train.py": TRAIN, "r.sh": 'EXTRA="--bf16"\npython train.py --lr 1e-4 $EXTRA\n'}, False),
        ("CFG009", {"train.py": TRAIN, "r.sh": "F=(\n  --bf16\n)\necho ${F[@]}\npython train.py --lr 1e-4\n"}, True),
        ("CFG009", {"train.py": TRAIN, "r.sh": 'F=(--bf16)\npython train.py --lr 1e-4 "${F[@]}"\n'}, False),
        ("CFG009", {"train.py": TRAIN, "r.sh": 'EXTRA="--bf16"\nexport EXTRA\npython train.py --lr 1e-4\n'}, False),
        ("CFG009", {"train.py": TRAIN, "r.sh": 'EXTRA="--bf16"\neval "$COMMAND"\npython train.py --lr 1e-4\n'}, False),
        (
            "CFG009",
            {"train.py": TRAIN, "env.sh": 'EXTRA="--bf16"\n', "r.sh": "source env.sh\npython train.py $EXTRA\n"},
            False,
        ),
        ("CFG009", {**TWO, "r.sh": 'C=${1:-a.yml}\necho "with $C"\naxolotl train a.yml\n'}, True),
        ("CFG009", {**TWO, "r.sh": "C=${1:-a.yml}\naxolotl train $C\n"}, False),
        ("CFG009", {**TWO, "r.sh": "axolotl train a.yml\n", "README.md": "    bash r.sh b.yml\n"}, True),
        ("CFG009", {**TWO, "r.sh": "axolotl train a.yml\n", "README.md": "    bash r.sh a.yml\n"}, False),
        ("CFG009", {**TWO, "r.sh": "axolotl train $1\n", "README.md": "    bash r.sh b.yml\n"}, False),
        (
            "CFG009",
            {**TWO, "r.sh": "C=$1\naxolotl train a.yml  # dynotune: ignore[CFG009] one file for now\n"},
            False,
        ),
        ("CFG009", {"train.py": FIRE.format(""), "r.sh": "python train.py --lr 1e-4 --bf16 True\n"}, True),
        ("CFG009", {"train.py": FIRE.format(", bf16=False"), "r.sh": "python train.py --bf16 True\n"}, False),
        ("CFG009", {"train.py": REST.format("_", ""), "r.sh": "python train.py --output_dir o --flash True\n"}, True),
        (
            "CFG009",
            {"train.py": REST.format("more", "print(more)\n"), "r.sh": "python train.py --output_dir o --flash True\n"},
            False,
        ),
        ("CFG005", {"a.yml": AXOLOTL.format("liger_rope: true\n")}, True),
        ("CFG005", {"a.yml": AXOLOTL.format("liger_rope: false\n")}, False),
        (
            "CFG005",
            {"a.yml": AXOLOTL.format("plugins: [axolotl.integrations.liger.LigerPlugin]\nliger_rope: true\n")},
            False,
        ),
        ("CFG005", {"a.yml": AXOLOTL.format("cut_cross_entropy: true\n")}, True),
        ("DST005", {"train.py": TRAIN, "j.sh": JOB.format(2, "srun torchrun --nproc_per_node=4 train.py")}, True),
        (
            "DST005",
            {"train.py": TRAIN, "j.sh": JOB.format(2, "torchrun --standalone --nproc_per_node=4 train.py")},
            True,
        ),
        ("DST005", {"train.py": TRAIN, "j.sh": JOB.format(1, "srun torchrun --nproc_per_node=4 train.py")}, False),
        (
            "DST005",
            {
                "train.py": TRAIN,
                "j.sh": JOB.format(2, "srun torchrun --nnodes 2 --rdzv_endpoint $H:29500 --nproc_per_node=4 train.py"),
            },
            False,
        ),
        ("DST005", {"train.py": TRAIN, "j.sh": JOB.format(2, "srun python train.py")}, False),
        (
            "DST005",
            {"train.py": TRAIN, "j.sh": JOB.format(2, "srun --nodes=1 torchrun --nproc_per_node=4 train.py")},
            False,
        ),
        ("DST005", {"train.py": TRAIN, "j.sh": JOB.format(1, "srun torchrun --nproc_per_node=2 train.py")}, True),
        ("DST005", {"train.py": TRAIN, "j.sh": JOB.format(1, "torchrun --nproc_per_node=2 train.py &\nwait")}, False),
        ("DST005", {"train.py": TRAIN, "j.sh": JOB.format(1, "torchrun --nproc_per_node=1 train.py")}, False),
        ("CFG009", {**MERGED, "r.sh": "python train.py c.yaml train.rate=1e-4\n"}, True),
        ("CFG009", {**MERGED, "r.sh": "python train.py c.yaml train.lr=1e-4\n"}, False),
        ("CFG009", {**MERGED, "r.sh": "python train.py c.yaml train.steps=5\n"}, False),  # read, where it is given
        ("CFG010", {"acc.yaml": ACCELERATE, "train.py": TRAIN, "r.sh": "accelerate launch train.py\n"}, True),
        (
            "CFG010",
            {"acc.yaml": ACCELERATE, "train.py": TRAIN, "r.sh": "accelerate launch --config_file acc.yaml train.py\n"},
            False,
        ),
        (
            "CFG010",
            {
                "acc.yaml": ACCELERATE,
                "train.py": TRAIN,
                "r.sh": "accelerate launch train.py\n",
                "README.md": "    cp acc.yaml ~/.cache/huggingface/accelerate/default_config.yaml\n",
            },
            False,
        ),
        ("CFG010", {"acc.yaml": ACCELERATE, "train.py": TRAIN, "r.sh": "torchrun train.py\n"}, True),
        ("CFG008", {**OWN, "train.py": STRICT}, True),
        ("CFG008", {**OWN, "train.py": STRICT.replace("    rows", "    warmup: int = 0\n    rows")}, False),
        (
            "CFG008",
            {"c.yaml": "name: x\ntrain:\n  lr: 1.0e-4\n  epoch: 3\n", "r.sh": OWN["r.sh"], "train.py": SECTION},
            True,
        ),
        ("CFG017", {**OWN, "train.py": FILTERS}, True),
        ("CFG017", {**OWN, "train.py": SETS}, True),
        ("CFG017", {**OWN, "train.py": SPEAKS}, False),
        ("CFG017", {"ds.json": '{"zero_optimization": {"stage": 2}, "gradient_cliping": 1.0}'}, True),
        ("CFG017", {"ds.json": '{"zero_optimization": {"stage": 2}, "gradient_clipping": 1.0}'}, False),
        ("CFG017", {"ds.json": '{"zero_optimization": {"stage": 3, "ofload_optimizer": {"device": "cpu"}}}'}, True),
        ("CFG017", {"ds.json": '{"zero_optimization": {"stage": 3, "zenflow": {"topk_ratio": 0.1}}}'}, False),
        ("CKP051", {"e.yaml": f"{EXPORT}export_legacy_format: true\n"}, True),
        ("CKP051", {"e.yaml": f"{EXPORT}export_legacy_format: false\n"}, False),
        (
            "CFG002",
            {
                "t.py": "from transformers import TrainingArguments\nTrainingArguments('o', eval_strategy='no')\n",
                "requirements.txt": "transformers==4.38.2\n",
            },
            True,
        ),
        ("CFG008", {"train.py": TRAIN, "README.md": "```bash\npython train.py --rate 1e-4\n```\n"}, True),
        ("CFG008", {"train.py": TRAIN, "README.md": "    torchrun train.py --rate 1e-4\n"}, True),
        ("CFG008", {"train.py": TRAIN, "README.md": "    python train.py --lr 1e-4 [--rate 1]\n"}, False),
        ("CFG008", {"train.py": TRAIN, "README.md": "It was once `python train.py --rate 1e-4`.\n"}, False),
        ("CFG008", {"train.py": TRAIN, "README.md": "```yaml\nrun: python train.py --rate 1e-4\n```\n"}, False),
        (
            "CFG008",
            {"train.py": TRAIN, "r.sh": "python train.py --lr 1\n", "README.md": "    python train.py --rate 1\n"},
            True,  # a launcher starts it
        ),
        ("CFG008", {"train.py": TRAIN, "Dockerfile": 'FROM a\nCMD ["python", "train.py", "--rate", "1"]\n'}, True),
        ("CFG008", {"train.py": TRAIN, "Dockerfile": "FROM a\nCMD python train.py --rate 1\n"}, True),
        (
            "CFG008",
            {"train.py": TRAIN, "Dockerfile": 'FROM a\nENTRYPOINT ["python", "train.py"]\nCMD ["--rate", "1"]\n'},
            True,
        ),
        ("CFG008", {"train.py": TRAIN, "Dockerfile": "FROM a\nCMD python train.py --lr 1\n"}, False),
        ("CFG008", {"train.py": TRAIN, "s.py": "import os\nos.system(f'python train.py --rate {1}')\n"}, True),
        ("CFG008", {"train.py": TRAIN, "s.py": "import os\nos.system(f'python train.py --lr {1}')\n"}, False),
        (
            "CFG008",
            {"train.py": TRAIN, "s.py": "import os\nos.system('python train.py --lr 1 && python b.py --rate 2')\n"},
            False,
        ),
        ("CFG008", {"train.py": TRAIN, "c/acc.yaml": ACCELERATE, "r.sh": LAUNCHED.format("c/accel.yaml")}, True),
        ("CFG008", {"train.py": TRAIN, "c/acc.yaml": ACCELERATE, "r.sh": LAUNCHED.format("c/acc.yaml")}, False),
        ("CFG008", {"train.py": TRAIN, "c/acc.yaml": ACCELERATE, "r.sh": LAUNCHED.format("d/accel.yaml")}, False),
        (
            "CFG008",
            {
                "train.py": TRAIN,
                "c/acc.yaml": ACCELERATE,
                "r.sh": f"cp x c/accel.yaml\n{LAUNCHED.format('c/accel.yaml')}",
            },
            False,
        ),
        ("CFG009", {"train.py": CLICK % "lr", "r.sh": "python train.py --lr 1 --warm-up 3\n"}, True),
        (
            "CFG009",
            {"train.py": (CLICK % "lr").replace("(lr, warm_up)\n    run", "(run(warm_up))\n    run"), "r.sh": WARM},
            False,
        ),
        ("CFG009", {"train.py": CLICK % "lr, warm_up", "r.sh": "python train.py --lr 1 --warm-up 3\n"}, False),
        ("CFG005", {"lf.yaml": FACTORY % "sft"}, True),
        ("CFG005", {"lf.yaml": FACTORY % "dpo"}, False),
        ("DST005", {"lf.yaml": FACTORY % "dpo", "r.sh": RANKS % "0,1"}, True),
        ("DST005", {"lf.yaml": FACTORY % "dpo", "r.sh": RANKS % "0,1,2,3"}, False),
        ("CFG011", {"a.yml": AXOLOTL.format("# two epochs\nnum_epochs: 3\n")}, True),
        ("CFG011", {"a.yml": AXOLOTL.format("# three epochs\nnum_epochs: 3\n")}, False),
        ("CFG011", {"a.yml": AXOLOTL.format("# two epochs were too few\nnum_epochs: 3\n")}, False),
        ("CFG011", {"a.yml": AXOLOTL.format("# num_epochs: 2\nnum_epochs: 3\n")}, False),
        ("ENV007", {"t.py": "from trl import GRPOTrainer\n", "requirements.txt": "trl==0.12.2\n"}, True),
        ("ENV007", {"t.py": "from trl import GRPOTrainer\n", "requirements.txt": "trl==0.15.2\n"}, False),
        ("ENV007", {"train.py": TRAIN, "requirements.txt": "transformers==4.45.2\naccelerate==0.21.0\n"}, True),
        ("ENV007", {"train.py": TRAIN, "requirements.txt": "transformers==4.44.2\naccelerate==0.21.0\n"}, False),
    ],
)
def test_it_is_found_and_its_neighbour_is_not(tmp_path: Path, code: str, files: dict[str, str], found: bool) -> None:
    result = audited(tmp_path, files, select=(code,))
    assert bool(result.findings) is found, [one.message for one in result.findings]


TRAINS = (
    "from transformers import HfArgumentParser, Trainer, TrainingArguments\n"
    "(args,) = HfArgumentParser((TrainingArguments,)).parse_args_into_dataclasses()\n"
    "Trainer(model=model, args=args, train_dataset=rows).train()\n"
)


@pytest.mark.parametrize(
    ("pin", "flag", "found"),
    [
        ("4.38.2", "--eval_strategy steps", True),
        ("4.41.2", "--eval_strategy steps", False),
        ("4.52.4", "--evaluation_strategy steps", True),
        ("4.44.2", "--use_liger_kernel", True),
        ("4.45.0", "--use_liger_kernel", False),
        ("4.50.0", "--warmup_ratio 0.1", False),
    ],
)
def test_flags_of_another_release(tmp_path: Path, pin: str, flag: str, found: bool) -> None:
    files = {
        "train.py": TRAINS,
        "requirements.txt": f"transformers=={pin}\n",
        "r.sh": f"python train.py --output_dir o {flag}\n",
    }
    codes = {one.code for one in audited(tmp_path, files, select=("CFG001", "CFG002", "CFG008")).findings}
    assert codes == ({"CFG002"} if found else set())


@pytest.mark.parametrize(
    ("flags", "attention"), [("--flash", "flash_attention_2"), ("", "sdpa"), ("--lr 1e-4 --flash", "flash_attention_2")]
)
@pytest.mark.parametrize(
    "parser",
    [
        "import argparse\np = argparse.ArgumentParser()\np.add_argument('--flash', action='store_true')\n"
        "p.add_argument('--lr', type=float)\na = p.parse_args()\n",
        "from dataclasses import dataclass\nfrom transformers import HfArgumentParser\n@dataclass\nclass Own:\n"
        "    flash: bool = False\n    lr: float = 1e-5\n(a,) = HfArgumentParser(Own).parse_args_into_dataclasses()\n",
    ],
)
def test_what_a_flag_decides(tmp_path: Path, parser: str, flags: str, attention: str) -> None:
    train = (
        f"{parser}from transformers import AutoModelForCausalLM, Trainer, TrainingArguments\n"
        "model = AutoModelForCausalLM.from_pretrained('Qwen/Qwen2.5-0.5B',\n"
        "    attn_implementation='flash_attention_2' if a.flash else 'sdpa')\n"
        "Trainer(model=model, args=TrainingArguments('o'), train_dataset=rows).train()\n"
    )
    result = audited(tmp_path, {"train.py": train, "r.sh": f"python train.py {flags}\n"})
    (job,) = result.project.jobs
    assert job.get("attn_implementation") == attention


@pytest.mark.parametrize(
    ("pins", "found"), [("trl==0.19.1\n", False), ("trl==0.19.1\ntransformers==5.16.0\n", True), ("trl\n", True)]
)
def test_an_older_trl_has_an_older_transformers(tmp_path: Path, pins: str, found: bool) -> None:
    files = {
        "sft.yaml": "model_name_or_path: Qwen/Qwen2.5-0.5B\ndataset_name: d\nwarmup_ratio: 0.1\n",
        "run.sh": "trl sft --config sft.yaml\n",
        "requirements.txt": pins,
    }
    assert bool(audited(tmp_path, files, select=("CFG002",)).findings) is found


HELD = {
    "conf/config.yaml": "train:\n  lr: 1.0e-5\n  {key}: {value}\n",
    "train.py": "import hydra\nfrom transformers import Trainer, TrainingArguments\n\n\n"
    "@hydra.main(version_base=None, config_path='conf', config_name='config')\ndef main(cfg):\n"
    "    args = TrainingArguments('out', learning_rate=cfg.train.lr, seed=1{more})\n"
    "    Trainer(model, args, train_dataset=rows).train()\n\n\nmain()\n",
}


@pytest.mark.parametrize(
    ("key", "value", "more", "says"),
    [
        ("bf16", "true", "", "the run has `bf16: False`"),
        ("warmup_ratio", "0.1", "", "to set it does nothing."),
        ("epochs", "5", "", "the run has `num_train_epochs: 3"),
        ("weight_decay", "0.1", ", weight_decay=0.01", "the run has `weight_decay: 0.01`"),
        ("epochs", "3", "", "to set it does nothing."),
        ("color", "red", "", "to set it does nothing."),
    ],
)
def test_what_the_run_has_instead(tmp_path: Path, key: str, value: str, more: str, says: str) -> None:
    files = {
        name: text.replace("{key}", key).replace("{value}", value).replace("{more}", more)
        for name, text in HELD.items()
    }
    (found,) = audited(tmp_path, files, select=("CFG017",)).findings
    assert says in found.message
