"""Promise: what a command, a script and a file say of one another is judged together: flags that go nowhere, keys that stay
behind, precisions that are replaced, runs that only try something out."""

from pathlib import Path

import pytest

from tests.audit.made_up import audited

TRAIN = (
    "import argparse\nfrom trl import SFTConfig, SFTTrainer\nparser = argparse.ArgumentParser()\n"
    "parser.add_argument('config')\n"
    "parser.add_argument('--lr', type=float, default=1e-5)\nargs = parser.parse_args()\n"
    "SFTTrainer('Qwen/Qwen2.5-0.5B', args=SFTConfig(learning_rate=args.lr), train_dataset=rows).train()\n"
)


def codes(folder: Path, files: dict[str, str], code: str) -> list[str]:
    return [one.message for one in audited(folder, files).findings if one.code == code]


@pytest.mark.parametrize(
    ("script", "readme"),
    [
        ("# usage: ./run.sh FILE [--lr 1e-5]\npython train.py ${1:?}\n", ""),
        ('CONFIG=$1\necho "args: $*"\npython train.py "$CONFIG"\n', "    ./run.sh a.json --lr 1e-5\n"),
        ("python train.py a.json\n", "```\nbash run.sh --lr 2e-5\n```\n"),
        ("#!/bin/bash\n# sbatch run.sh a.json --lr 3e-6\nsrun python train.py $1\n", ""),
    ],
)
def test_flags_that_a_shell_script_promises_and_drops(tmp_path: Path, script: str, readme: str) -> None:
    (said,) = codes(tmp_path, {"run.sh": script, "train.py": TRAIN, "README.md": readme}, "CFG009")
    assert "is said to take `--lr`" in said


@pytest.mark.parametrize(
    "script",
    [
        '# usage: ./run.sh FILE [--lr 1e-5]\npython train.py "$@"\n',
        "# usage: ./run.sh FILE [--lr 1e-5]\nCONFIG=$1; shift\npython train.py $CONFIG $*\n",
        "# usage: ./run.sh FILE [--lr 1e-5]\npython train.py $1 --lr $3\n",
        "# usage: ./run.sh FILE [--help]\npython train.py $1\n",
        "# python train.py a.json --lr 1e-5 is what run.sh starts\npython train.py $1\n",
        "# usage: ./run.sh FILE [--lr 1e-5]\npython train.py $1  # dynotune: ignore[CFG009] the usage is old\n",
    ],
)
def test_a_shell_script_that_hands_on_or_promises_nothing(tmp_path: Path, script: str) -> None:
    assert not codes(tmp_path, {"run.sh": script, "train.py": TRAIN}, "CFG009")


LF = (
    "model_name_or_path: Qwen/Qwen2.5-0.5B\nstage: sft\ndo_train: true\nfinetuning_type: lora\nlora_rank: 8\ndataset: mine\n"
    "template: qwen\ncutoff_len: 1024\noutput_dir: o\nlearning_rate: 1.0e-4\n{}"
)
KEYS = (
    "KEYS = ['model_name_or_path', 'stage', 'do_train', 'finetuning_type', 'lora_rank', 'dataset',"
    " 'template', 'cutoff_len']\n"
)
SWEEP = (
    "import subprocess\nimport yaml\n# python sweep.py over base.yaml\n{}base = yaml.safe_load(open('base.yaml'))\n"
    "cfg = {{k: base[k] for k in KEYS if k in base}}\ncfg['learning_rate'] = 2e-4\ncfg['output_dir'] = 'o'\n"
    "open('p.yaml', 'w').write(yaml.safe_dump(cfg))\nsubprocess.run(['llamafactory-cli', 'train', 'p.yaml'])\n"
)


def test_keys_that_a_launcher_of_ones_own_leaves_behind(tmp_path: Path) -> None:
    (said,) = codes(tmp_path, {"base.yaml": LF.format("warmup_ratio: 0.1\n"), "sweep.py": SWEEP.format(KEYS)}, "CFG017")
    assert "`warmup_ratio` stay behind" in said
    assert not codes(tmp_path / "all", {"base.yaml": LF.format(""), "sweep.py": SWEEP.format(KEYS)}, "CFG017")
    noted = f"# dynotune: ignore[CFG017] on purpose\n{KEYS}"
    held = {"base.yaml": LF.format("warmup_ratio: 0.1\n"), "sweep.py": SWEEP.format(noted)}
    assert not codes(tmp_path / "held", held, "CFG017")


OWN = (
    "import argparse\nimport torch\nfrom accelerate import Accelerator\nfrom transformers import AutoModelForCausalLM\n"
    "parser = argparse.ArgumentParser()\nparser.add_argument('--mixed_precision', default={})\n"
    "parser.add_argument('--epochs', type=int)\nargs = parser.parse_args()\n"
    "accelerator = Accelerator(mixed_precision={})\nmodel = AutoModelForCausalLM.from_pretrained('Qwen/Qwen2.5-0.5B')\n"
    "optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)\n"
    "for batch in loader:\n    accelerator.backward(model(**batch).loss)\n    optimizer.step()\n    optimizer.zero_grad()\n"
)
LAUNCH = "accelerate launch --mixed_precision bf16 --num_processes 2 train.py --epochs 2{}\n"


@pytest.mark.parametrize(
    ("default", "given", "flags", "wrong"),
    [
        ("'no'", "args.mixed_precision", "", True),
        ("'bf16'", "'no'", "", True),
        ("None", "args.mixed_precision", "", False),
        ("'no'", "args.mixed_precision", " --mixed_precision bf16", False),
        ("'bf16'", "args.mixed_precision", "", False),
    ],
)
def test_the_scripts_own_precision_wins_over_the_launchers(
    tmp_path: Path, default: str, given: str, flags: str, wrong: bool
) -> None:
    found = codes(tmp_path, {"train.py": OWN.format(default, given), "run.sh": LAUNCH.format(flags)}, "PRC002")
    assert bool(found) is wrong


SFT = (
    "model_name_or_path: Qwen/Qwen2.5-0.5B\ndataset_name: d\nper_device_train_batch_size: 4\n"
    "gradient_accumulation_steps: 2\n"
)
STARTS = "accelerate launch --num_processes {} -m trl.scripts.sft --config sft.yaml {}\n"


@pytest.mark.parametrize(
    ("first", "second", "wrong"),
    [
        ((8, ""), (2, ""), True),
        ((8, ""), (2, "--max_steps 20"), False),
        ((8, ""), (1, "--output_dir /tmp/smoke"), False),
        ((8, ""), (8, "--gradient_accumulation_steps 1"), False),
        ((8, ""), (2, "--gradient_accumulation_steps 8"), False),
    ],
)
def test_a_trial_run_is_no_other_batch(
    tmp_path: Path, first: tuple[int, str], second: tuple[int, str], wrong: bool
) -> None:
    files = {"a.sh": STARTS.format(*first), "b.sh": STARTS.format(*second), "sft.yaml": SFT}
    assert bool(codes(tmp_path, files, "OPT005")) is wrong


REENTRANT = (
    "from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training\n"
    "from transformers import AutoModelForCausalLM, Trainer, TrainingArguments\n"
    "model = AutoModelForCausalLM.from_pretrained('Qwen/Qwen2.5-0.5B', load_in_4bit=True)\n"
    "{}model = get_peft_model(model, LoraConfig(r=8))\n"
    "args = TrainingArguments('o', gradient_checkpointing=True, gradient_checkpointing_kwargs={{'use_reentrant': True}})\n"
    "Trainer(model=model, args=args, train_dataset=rows).train()\n"
)
PREPARED = "model = prepare_model_for_kbit_training(model, gradient_checkpointing_kwargs={'use_reentrant': True})\n"


def test_reentrant_checkpointing_that_was_seen_to_is_left_alone(tmp_path: Path) -> None:
    """One process, and the inputs require gradients; not where several processes or a compiler trip over it."""
    assert not codes(tmp_path / "a", {"train.py": REENTRANT.format(PREPARED)}, "MEM002")
    assert not codes(tmp_path / "b", {"train.py": REENTRANT.format("model.enable_input_require_grads()\n")}, "MEM002")
    assert codes(tmp_path / "c", {"train.py": REENTRANT.format("")}, "MEM002")
    several = {"train.py": REENTRANT.format(PREPARED), "run.sh": "torchrun --nproc_per_node 4 train.py\n"}
    assert codes(tmp_path / "d", several, "MEM002")
    compiled = REENTRANT.format(f"{PREPARED}model = torch.compile(model)\n")
    assert codes(tmp_path / "e", {"train.py": f"import torch\n{compiled}"}, "MEM002")


DEEPSPEED = '{"zero_optimization": {"stage": 2}, "bf16": {"enabled": true}}\n'


def test_a_deepspeed_file_that_only_a_document_names(tmp_path: Path) -> None:
    readme = "Runs use DeepSpeed ZeRO-2 (`ds.json`) for the states.\n"
    files = {"base.yaml": LF.format(""), "ds.json": DEEPSPEED}
    assert codes(tmp_path / "a", {**files, "README.md": readme}, "CFG010")
    assert not codes(tmp_path / "b", {**files, "README.md": "`ds.json` can be used instead.\n"}, "CFG010")
    named = {**files, "base.yaml": LF.format("deepspeed: ds.json\n"), "README.md": readme}
    assert not codes(tmp_path / "c", named, "CFG010")


TEXTS = (
    "from datasets import load_dataset\nfrom trl import SFTConfig, SFTTrainer\n\n\ndef whole(row):\n"
    "    text = f\"Q: {{row['q']}} A: {{row['a']}}\"\n    return {}\n\n\n"
    "rows = load_dataset('json', data_files='d.jsonl')['train'].map(whole)\n"
    "args = SFTConfig(output_dir='o', completion_only_loss={})\n"
    "SFTTrainer('Qwen/Qwen2.5-0.5B', args=args, train_dataset=rows).train()\n"
)


@pytest.mark.parametrize(
    ("row", "asked", "wrong"),
    [
        ("{'text': text}", "True", True),
        ("{'text': text, 'id': row['id']}", "True", True),
        ("dict(row) | {'text': text}", "True", True),
        ("{'prompt': row['q'], 'completion': row['a']}", "True", False),
        ("{'text': text}", "None", False),
        ("{'text': text}", "True)  # dynotune: ignore[MSK050] on purpose\nprint(rows", False),
    ],
)
def test_completions_that_the_rows_do_not_have(tmp_path: Path, row: str, asked: str, wrong: bool) -> None:
    assert bool(codes(tmp_path, {"train.py": TEXTS.format(row, asked)}, "MSK050")) is wrong


_QLORA = (
    "base_model: a/b\nadapter: qlora\nload_in_4bit: true\ndatasets:\n  - path: data.jsonl\n    type: alpaca\n"
    "sequence_len: 2048\nmicro_batch_size: 2\ngradient_accumulation_steps: 16\n"
)


@pytest.mark.parametrize(
    ("script", "where"),
    [
        ('axolotl train "configs/$1.yml" --gradient-accumulation-steps 1\n', ["chat", "qa"]),
        ("STEP=${1:?}\naxolotl train configs/$STEP.yml --gradient-accumulation-steps=1\n", ["chat", "qa"]),
        (
            "for s in chat qa; do\n  axolotl train configs/${s}.yml --gradient_accumulation_steps 1\ndone\n",
            ["chat", "qa"],
        ),
        ("axolotl train configs/q${1}.yml --gradient-accumulation-steps 1\n", ["qa"]),
        (
            "# everything else is in the yaml\naxolotl train configs/$1.yml --gradient-accumulation-steps 1\n",
            ["chat", "qa"],
        ),
        ("# one row at a time, less than the yaml\naxolotl train configs/$1.yml --gradient-accumulation-steps 1\n", []),
        ("axolotl train configs/$1.yml --gradient-accumulation-steps 16\n", []),
        ("axolotl train $1 --gradient-accumulation-steps 1\n", []),
        ("axolotl train other/$1.yml --gradient-accumulation-steps 1\n", []),
    ],
)
def test_a_configuration_that_is_named_by_a_variable(tmp_path: Path, script: str, where: list[str]) -> None:
    files = {"train.sh": script, "configs/chat.yml": _QLORA, "configs/qa.yml": _QLORA, "configs/ci.yaml": "jobs: 1\n"}
    found = audited(tmp_path, files, select=("CFG007",)).findings
    assert sorted(one.place.file for one in found) == [f"configs/{name}.yml" for name in where]


@pytest.mark.parametrize(
    ("command", "fires"),
    [
        ("python -m src.train optim.learning_rate=1e-5", True),
        ("torchrun --nproc_per_node 2 -m src.train optim.learning_rate=1e-5", True),
        ("accelerate launch -m src.train optim.learning_rate=1e-5 seed=2", True),
        ("python src/train.py optim.learning_rate=1e-5", True),
        ("for lr in 1 2; do python -m src.train optim.learning_rate=$lr; done", True),
        ("python -m src.train optim.lr=1e-5", False),
        ("python -m src.train +optim.learning_rate=1e-5", False),
    ],
)
def test_keys_that_hydra_lacks_in_commands_of_modules(tmp_path: Path, command: str, fires: bool) -> None:
    train = (
        "import hydra\n@hydra.main(version_base=None, config_path='../conf', config_name='config')\n"
        "def main(cfg):\n    print(cfg.optim.lr, cfg.seed)\nmain()\n"
    )
    files = {"run.sh": f"{command}\n", "src/train.py": train, "conf/config.yaml": "seed: 1\noptim:\n  lr: 1.0e-5\n"}
    assert bool(audited(tmp_path, files, select=("CFG008",)).findings) is fires


_ARGUMENTS = (
    "import argparse\nimport os\np = argparse.ArgumentParser()\np.add_argument('--amp', default='off')\n"
    "p.add_argument('--lr', type=float, default=1e-5)\np.add_argument('--warmup_ratio', type=float, default=0.0)\n"
    "p.add_argument('--model')\np.add_argument('--epochs', type=int, default=1)\np.add_argument('--out')\n"
    "a = p.parse_args()\nprint(a.amp, a.lr, a.warmup_ratio, a.model, a.epochs, a.out{})\n"
)


@pytest.mark.parametrize(
    ("run", "more", "lost"),
    [
        ("AMP=${AMP:-bf16}\nOUT=runs/x-$AMP\npython train.py --out $OUT\n", "", True),
        ("export AMP=bf16\necho using $AMP\npython train.py --lr 1e-5\n", "", True),
        ('LR="3e-4"\npython train.py --amp bf16\n', "", True),
        ("AMP=bf16\ntrain() {\n  python train.py\n}\npython train.py\n", "", True),
        ("AMP=bf16\npython train.py --amp $AMP\n", "", False),
        ('AMP=bf16\nARGS="--amp $AMP"\npython train.py $ARGS\n', "", False),
        ("AMP=off\npython train.py\n", "", False),  # what the default says
        ("AMP=bf16\n[ $AMP = bf16 ] && python train.py --amp bf16\n", "", False),
        ("export AMP=bf16\npython train.py\n", ", os.environ['AMP']", False),
    ],
)
def test_variables_of_a_launcher_that_no_command_gets(tmp_path: Path, run: str, more: str, lost: bool) -> None:
    files = {"run.sh": run, "train.py": _ARGUMENTS.format(more)}
    found = audited(tmp_path, files, select=("CFG009",)).findings
    assert len(found) == lost
    held = {**files, "run.sh": run.replace("python train", "# dynotune: ignore[CFG009] on purpose\npython train")}
    assert not audited(tmp_path / "held", held, select=("CFG009",)).findings


_KEYS = "model: a/b\nlr: 2.0e-5\nwarmup_ratio: 0.03\nepochs: 2\nout: o\n"
_GETS = {
    "python": """get() { python -c "import yaml; print(yaml.safe_load(open('$CONFIG'))['$1'])"; }\n""",
    "yq": 'get() { yq ".$1" $CONFIG; }\n',
    "grep": 'get() { grep "^$1:" "$CONFIG" | cut -d" " -f2; }\n',
}
_PICKS = (
    'CONFIG=$1\n{}accelerate launch train.py --model "$(get model)" \\\n  --lr $(get lr) --epochs $(get epochs) \\\n'
    '  --out "$(get out)"{}\n'
)


@pytest.mark.parametrize(
    ("get", "more", "keys", "lost"),
    [
        ("python", "", _KEYS, True),
        ("yq", "", _KEYS, True),
        ("grep", "", _KEYS, True),
        ("yq", ' --warmup_ratio "$(get warmup_ratio)"', _KEYS, False),
        ("yq", " --warmup_ratio 0.1", _KEYS, False),
        ("yq", "", _KEYS.replace("0.03", "0.0"), False),  # what the script does by itself
        ("yq", "", _KEYS.replace("warmup_ratio", "tracker"), False),  # no flag of the script's
        ("yq", " --config $CONFIG", _KEYS, False),  # the script has the file as well
    ],
)
def test_keys_that_a_shell_launcher_leaves_behind(tmp_path: Path, get: str, more: str, keys: str, lost: bool) -> None:
    files = {"run.sh": _PICKS.format(_GETS[get], more), "a.yaml": keys, "train.py": _ARGUMENTS.format("")}
    found = audited(tmp_path, files, select=("CFG009",)).findings
    assert bool(found) is lost
    assert not lost or any(place.file == "a.yaml" for place in found[0].also)


_SEEDED = (
    "import argparse\nimport torch\np = argparse.ArgumentParser()\np.add_argument('--seed', type=int, default=1)\n"
    "p.add_argument('--lr', type=float, default=1e-5)\na = p.parse_args()\n{}print(a.lr)\n"
)


@pytest.mark.parametrize(("line", "lost"), [("torch.manual_seed(42)\n", True), ("", False)])
def test_a_seed_that_nothing_reads_is_said_where_something_seeds(tmp_path: Path, line: str, lost: bool) -> None:
    files = {"run.sh": "python train.py --lr 1e-5 --seed 2\n", "train.py": _SEEDED.format(line)}
    assert bool(audited(tmp_path, files, select=("CFG009",)).findings) is lost


_DPO = (
    "from peft import get_peft_model\nfrom transformers import AutoModelForCausalLM\nfrom trl import DPOConfig, DPOTrainer\n"
    "model = AutoModelForCausalLM.from_pretrained('Qwen/Qwen2.5-0.5B', dtype='bfloat16')\n{}"
    "args = DPOConfig(output_dir='o', bf16=True, learning_rate=5e-6, optim='adamw_torch_fused')\n"
    "DPOTrainer(model, args=args, train_dataset=rows).train()\n"
)


@pytest.mark.parametrize(
    ("line", "fires"), [("", True), ("if lora is not None:\n    model = get_peft_model(model, lora)\n", False)]
)
def test_a_model_that_may_be_wrapped(tmp_path: Path, line: str, fires: bool) -> None:
    text = _DPO.format(line) if line else _DPO.format("").replace("from peft import get_peft_model\n", "")
    files = {"train.py": text, "run.sh": "torchrun --nproc_per_node 2 train.py\n"}
    assert bool(audited(tmp_path, files, select=("PRC004",)).findings) is fires


_RECIPE = (
    "model_name_or_path: Qwen/Qwen2.5-0.5B\nuse_peft: {}\nlora_r: 32\nbeta: 0.1\nnum_train_epochs: 3\n"
    "precompute_ref_log_probs: false\nbf16: true\noutput_dir: o\nlearning_rate: 5.0e-6\n"
)
_PARSES = (
    "import sys\nfrom peft import get_peft_model\nfrom transformers import AutoModelForCausalLM, HfArgumentParser\n"
    "from trl import DPOConfig, DPOTrainer, ModelConfig, get_peft_config\n"
    "parser = HfArgumentParser((DPOConfig, ModelConfig))\nargs, config = parser.parse_yaml_file(sys.argv[1])\n"
    "model = AutoModelForCausalLM.from_pretrained(config.model_name_or_path)\nlora = get_peft_config(config)\n"
    "if lora is not None:\n    model = get_peft_model(model, lora)\n"
    "DPOTrainer(model, args=args, train_dataset=rows).train()\n"
)


@pytest.mark.parametrize(("asked", "fires"), [("true", True), ("false", False)])
def test_adapters_that_a_recipe_asks_trls_own_reader_for(tmp_path: Path, asked: str, fires: bool) -> None:
    files = {"a.yaml": _RECIPE.format(asked), "train.py": _PARSES, "run.sh": "python train.py a.yaml\n"}
    found = audited(tmp_path, files, select=("DPO001",)).findings
    assert any("runs again at every step" in one.message and "memory" not in one.message for one in found) is fires
