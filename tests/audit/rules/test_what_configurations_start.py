"""Promise: what services start is read; columns that data lacks, keys that nothing reads and packages installed for nothing
are said, each with its neighbour on which nothing is."""

from pathlib import Path

import pytest

from tests.audit.made_up import audited

TRAIN = (
    "import argparse\n\nfrom datasets import load_dataset\nfrom transformers import AutoModelForCausalLM, Trainer,"
    " TrainingArguments\n\nparser = argparse.ArgumentParser()\nparser.add_argument('--epochs', type=int)\n"
    "parser.add_argument('--rows', type=int)\nargs = parser.parse_args()\n"
    "model = AutoModelForCausalLM.from_pretrained('Qwen/Qwen2.5-1.5B'{})\n"
    "trainer = Trainer(model=model, train_dataset=load_dataset('json', data_files='d.jsonl')['train'],\n"
    "    args=TrainingArguments(output_dir='o', num_train_epochs=args.epochs, per_device_train_batch_size=args.rows{}))\n"
    "trainer.train()\n"
)
PLAIN = TRAIN.format("", ", bf16=True")
COMPOSE = "services:\n  train:\n    build: .\n{}"
JOB = "apiVersion: batch/v1\nkind: Job\nspec:\n  template:\n    spec:\n      containers:\n        - name: t\n{}"


@pytest.mark.parametrize(
    ("file", "text", "line"),
    [
        ("compose.yaml", COMPOSE.format("    command: python train.py --gpus 2\n"), 4),
        ("docker-compose.yml", COMPOSE.format('    command: ["python", "train.py", "--gpus", "2"]\n'), 4),
        (
            "compose.yaml",
            COMPOSE.format('    command:\n      - python\n      - train.py\n      - --gpus\n      - "2"\n'),
            4,
        ),
        ("compose.yaml", COMPOSE.format('    entrypoint: ["python", "train.py"]\n    command: ["--gpus", "2"]\n'), 5),
        (
            "compose.yaml",
            COMPOSE.format('    command: >\n      bash -c "pip install x &&\n      python train.py --gpus 2"\n'),
            6,
        ),
        (
            "job.yaml",
            JOB.format('          command: ["python", "train.py"]\n          args: ["--gpus", "2"]\n'),
            9,
        ),
        (
            "job.yaml",
            JOB.format('          command: ["bash", "-c"]\n          args: ["python train.py --gpus 2"]\n'),
            9,
        ),
        ("sky.yaml", "resources:\n  accelerators: H100:8\nrun: |\n  cd ~/x\n  python train.py \\\n    --gpus 2\n", 6),
    ],
)
def test_services_start_programs(file: str, text: str, line: int, tmp_path: Path) -> None:
    (found,) = audited(tmp_path, {"train.py": PLAIN, file: text}, select=("CFG008",)).findings
    assert found.place.file == file
    assert abs(found.place.line - line) <= 1
    right = text.replace("--gpus", "--rows")
    assert not audited(tmp_path / "right", {"train.py": PLAIN, file: right}, select=("CFG008",)).findings


def test_a_service_may_say_that_a_flag_is_meant(tmp_path: Path) -> None:
    held = COMPOSE.format("    command: python train.py --gpus 2  # dynotune: ignore[CFG008] the image's own script\n")
    assert not audited(tmp_path, {"train.py": PLAIN, "compose.yaml": held}, select=("CFG008",)).findings


FACTORY = (
    "model_name_or_path: Qwen/Qwen2.5-7B\nstage: sft\ndo_train: true\nfinetuning_type: lora\ndataset: mine\ntemplate: qwen\n"
    "cutoff_len: 2048\noutput_dir: o\n"
)
AXOLOTL = (
    "base_model: Qwen/Qwen2.5-7B\nadapter: lora\nmicro_batch_size: 2\nsequence_len: 2048\n"
    "num_epochs: 1\ndatasets:\n  - path: data/d.jsonl\n    type: {}\n"
)
TURNS = '{"messages": [{"role": "user", "content": "a"}]}\n'
SHARED = '{{"mine": {{"file_name": "d.jsonl", "formatting": "sharegpt", "columns": {{"messages": "messages"}}{}}}}}'
NAMED = '{"mine": {"file_name": "d.jsonl", "columns": {"prompt": "question", "response": "answer"}}}'


@pytest.mark.parametrize(
    ("files", "found"),
    [
        (
            {
                "a.yaml": FACTORY,
                "data/dataset_info.json": NAMED,
                "data/d.jsonl": '{"instruction": "a", "output": "b"}\n',
            },
            True,
        ),
        (
            {"a.yaml": FACTORY, "data/dataset_info.json": NAMED, "data/d.jsonl": '{"question": "a", "answer": "b"}\n'},
            False,
        ),
        ({"a.yaml": FACTORY, "data/dataset_info.json": NAMED}, False),
        (
            {"a.yaml": FACTORY, "data/dataset_info.json": '{"mine": {"file_name": "d.jsonl"}}', "data/d.jsonl": TURNS},
            True,
        ),
        ({"a.yaml": FACTORY, "data/dataset_info.json": SHARED.format(""), "data/d.jsonl": TURNS}, True),
        (
            {
                "a.yaml": FACTORY,
                "data/dataset_info.json": SHARED.format(', "tags": {"role_tag": "role", "content_tag": "content"}'),
                "data/d.jsonl": TURNS,
            },
            False,
        ),
        ({"a.yml": AXOLOTL.format("alpaca"), "data/d.jsonl": '{"question": "a", "answer": "b"}\n'}, True),
        ({"a.yml": AXOLOTL.format("alpaca"), "data/d.jsonl": '{"instruction": "a", "output": "b"}\n'}, False),
        ({"a.yml": AXOLOTL.format("chat_template"), "data/d.jsonl": '{"conversations": [{"from": "x"}]}\n'}, True),
        ({"a.yml": AXOLOTL.format("chat_template"), "data/d.jsonl": TURNS}, False),
        ({"a.yml": AXOLOTL.format("mine.own"), "data/d.jsonl": TURNS}, False),
        ({"a.yml": AXOLOTL.format("alpaca"), "data/d.jsonl": "no JSON\n"}, False),
    ],
)
def test_columns_that_data_lacks(files: dict[str, str], found: bool, tmp_path: Path) -> None:
    assert bool(audited(tmp_path, files, select=("CFG014",)).findings) is found


LOADS = (
    "import sys\n\nimport yaml\nfrom omegaconf import OmegaConf\nfrom transformers import AutoModelForCausalLM\n\n"
    "{}\nmodel = AutoModelForCausalLM.from_pretrained(cfg{})\nprint(cfg{}, cfg{})\n"
)
CONF = "model:\n  path: a/b\ntrain:\n  lr: 1.0e-5\n  rows: 4\n{}"


@pytest.mark.parametrize(
    "loads",
    ["cfg = OmegaConf.load(sys.argv[1])", "cfg = OmegaConf.merge(OmegaConf.load(sys.argv[1]), OmegaConf.from_cli())"],
)
@pytest.mark.parametrize(("more", "found"), [("  grad_accum: 8\n", True), ("", False)])
def test_nested_keys_that_nothing_reads(loads: str, more: str, found: bool, tmp_path: Path) -> None:
    script = LOADS.format(loads, ".model.path", ".train.lr", ".train.rows")
    files = {"train.py": script, "conf.yaml": CONF.format(more), "run.sh": "python train.py conf.yaml\n"}
    result = audited(tmp_path, files, select=("CFG017",)).findings
    assert [one.place.key for one in result] == (["train.grad_accum"] if found else [])


def test_nested_keys_of_plain_yaml_and_of_what_is_taken_whole(tmp_path: Path) -> None:
    loads = "cfg = yaml.safe_load(open(sys.argv[1]))"
    script = LOADS.format(loads, "['model']['path']", "['train']['lr']", "['train'].get('rows')")
    files = {"train.py": script, "conf.yaml": CONF.format("  grad_accum: 8\n"), "run.sh": "python train.py conf.yaml\n"}
    assert audited(tmp_path, files, select=("CFG017",)).findings
    whole = {**files, "train.py": script + "start(**cfg['train'])\n"}
    assert not audited(tmp_path / "whole", whole, select=("CFG017",)).findings
    held = {**files, "conf.yaml": CONF.format("  grad_accum: 8  # dynotune: ignore[CFG017] for later\n")}
    assert not audited(tmp_path / "held", held, select=("CFG017",)).findings


@pytest.mark.parametrize(
    ("files", "found"),
    [
        ({"train.py": PLAIN, "README.md": "If it is slow, `pip install xformers`, it is picked up.\n"}, True),
        ({"train.py": PLAIN, "README.md": "For faster training:\n\n```\npip install flash-attn\n```\n"}, True),
        ({"train.py": PLAIN, "README.md": "To save memory: `pip install bitsandbytes`.\n"}, True),
        ({"train.py": PLAIN + "print('Tip: pip install xformers for faster training')\n"}, True),
        ({"train.py": PLAIN, "run.sh": "pip install liger-kernel  # 20% faster\npython train.py\n"}, True),
        ({"train.py": PLAIN, "README.md": "For faster training `pip install flash-attn` and pass `--attn`.\n"}, False),
        ({"train.py": PLAIN, "README.md": "`pip install bitsandbytes` is not needed to save memory.\n"}, False),
        ({"train.py": PLAIN, "README.md": "For faster inference `pip install xformers`.\n"}, False),
        (
            {
                "train.py": TRAIN.format(", attn_implementation='flash_attention_2'", ", bf16=True"),
                "README.md": "For faster training `pip install flash-attn`.\n",
            },
            False,
        ),
        ({"train.py": PLAIN, "README.md": "`pip install accelerate`\n"}, False),
        ({"train.py": PLAIN, "README.md": "For fast installs: `uv pip install trl bitsandbytes`\n"}, False),
    ],
)
def test_installed_for_nothing(files: dict[str, str], found: bool, tmp_path: Path) -> None:
    assert bool(audited(tmp_path, files, select=("CFG011",)).findings) is found


PINS = "torch==2.5.1\ntransformers==4.46.3\ndatasets==3.1.0\n"
LOOP = (
    "import torch\nfrom accelerate import Accelerator\nfrom transformers import AutoModelForCausalLM\n\n"
    "accelerator = Accelerator()\nmodel = AutoModelForCausalLM.from_pretrained('bigcode/starcoder2-3b')\n"
    "optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)\nmodel, optimizer = accelerator.prepare(model, optimizer)\n"
    "for batch in loader:\n    accelerator.backward(model(**batch).loss)\n    optimizer.step()\n    optimizer.zero_grad()\n"
)
NONE = (
    "compute_environment: LOCAL_MACHINE\ndistributed_type: MULTI_GPU\nnum_machines: 1\n"
    "num_processes: 4\nmixed_precision: {}\n"
)
ADAPTERS = (
    "base_model: Qwen/Qwen2.5-7B\nadapter: lora\nmicro_batch_size: 2\nsequence_len: 2048\n"
    "datasets:\n  - path: d.jsonl\n    type: alpaca\n"
)


@pytest.mark.parametrize(
    ("files", "found"),
    [
        ({"train.py": LOOP, "a.yaml": NONE.format("'no'"), "README.md": "It trains in bf16 on four cards.\n"}, True),
        ({"train.py": LOOP, "a.yaml": NONE.format("'no'"), "README.md": "It trains on four cards.\n"}, False),
        ({"train.py": LOOP, "a.yaml": NONE.format("bf16"), "README.md": "It trains in bf16 on four cards.\n"}, False),
        ({"train.py": TRAIN.format("", ""), "requirements.txt": PINS, "README.md": "It trains in bf16.\n"}, True),
        ({"train.py": TRAIN.format("", ""), "README.md": "It trains in bf16.\n"}, False),
        ({"train.py": PLAIN, "requirements.txt": PINS, "README.md": "It trains in bf16.\n"}, False),
        ({"a.yml": ADAPTERS + "bf16: false\n"}, True),
        ({"a.yml": ADAPTERS + "bf16: false\nfp16: true\n"}, False),
        ({"a.yml": ADAPTERS + "bf16: auto\n"}, False),
    ],
)
def test_float32_that_was_not_meant(files: dict[str, str], found: bool, tmp_path: Path) -> None:
    files = {**files, "run.sh": "accelerate launch --config_file a.yaml train.py\n"} if "a.yaml" in files else files
    assert bool(audited(tmp_path, files, select=("PRC006",)).findings) is found


WORKERS = "model_name_or_path: a/b\ndataset_name: d.jsonl\noutput_dir: o\nmax_length: 512\ndataloader_num_workers: {}\n"


@pytest.mark.parametrize(
    ("workers", "more", "found"), [(64, "", True), (8, "", False), (64, "#SBATCH --ntasks=4\n", False)]
)
def test_workers_and_the_cores_of_a_job_file(workers: int, more: str, found: bool, tmp_path: Path) -> None:
    run = f"#!/bin/bash\n#SBATCH --cpus-per-task=8\n{more}trl sft --config a.yaml\n"
    files = {"a.yaml": WORKERS.format(workers), "run.sh": run}
    assert bool(audited(tmp_path, files, select=("HST051",)).findings) is found


CUT = "axolotl.integrations.cut_cross_entropy.CutCrossEntropyPlugin"


@pytest.mark.parametrize(("more", "found"), [("", True), ("cut_cross_entropy: false\n", False)])
def test_an_adapter_on_the_head_that_a_cut_loss_passes_by(more: str, found: bool, tmp_path: Path) -> None:
    text = f"{ADAPTERS}lora_target_modules: [q_proj, lm_head]\nplugins:\n  - {CUT}\n{more}"
    assert bool(audited(tmp_path, {"a.yml": text}, select=("LOR003",)).findings) is found


@pytest.mark.parametrize(("pin", "found"), [("4.40.0", True), ("4.55.0", False)])
def test_transformers_that_trl_does_not_take(pin: str, found: bool, tmp_path: Path) -> None:
    files = {"train.py": PLAIN, "requirements.txt": f"trl==0.20.0\ntransformers=={pin}\n"}
    assert bool(audited(tmp_path, files, select=("ENV007",)).findings) is found


def test_a_command_before_the_name_does_not_start_it(tmp_path: Path) -> None:
    text = "model_name_or_path: a/b\ndataset_name: d.jsonl\noutput_dir: o\nmax_length: 512\nlearning_rate: 1.0e-5\n"
    files = {"v1.yaml": text, "v2.yaml": text, "run.sh": "trl sft --config v1.yaml\n"}
    readme = "`bash run.sh` makes the released model, which was trained with `v2.yaml`.\n"
    assert audited(tmp_path, {**files, "README.md": readme}, select=("CFG010",)).findings
    starts = "The released model was trained with `bash run.sh v2.yaml`.\n"
    assert not audited(tmp_path / "starts", {**files, "README.md": starts}, select=("CFG010",)).findings


@pytest.mark.parametrize(
    ("command", "found"),
    [
        ("python train.py --rows 8\n", True),
        ("srun python train.py --rows 8\n", False),
        ("torchrun --nproc_per_node 8 train.py --rows 8\n", False),
        ("CUDA_VISIBLE_DEVICES=0 python train.py --rows 8\n", False),
        ("python train.py --rows 8 &\npython train.py --rows 4 &\nwait\n", False),
    ],
)
def test_a_job_file_of_many_gpus_and_one_process(command: str, found: bool, tmp_path: Path) -> None:
    files = {"train.py": PLAIN, "job.sbatch": f"#!/bin/bash\n#SBATCH --gres=gpu:h100:8\n{command}"}
    assert bool(audited(tmp_path, files, select=("DST004",)).findings) is found


@pytest.mark.parametrize(
    ("said", "key", "found"),
    [
        ("The loss is only on the answers.", "train_on_inputs: true", True),
        ("It trains on the responses only.", "train_on_inputs: true", True),
        ("The loss is only on the answers.", "train_on_inputs: false", False),
        ("The loss is on all tokens.", "train_on_inputs: true", False),
    ],
)
def test_a_loss_that_a_document_claims(said: str, key: str, found: bool, tmp_path: Path) -> None:
    files = {"a.yml": f"{ADAPTERS}{key}\n", "README.md": f"# x\n\n{said}\n"}
    codes = {one.code for one in audited(tmp_path, files).findings}
    assert bool(codes & {"CFG011", "MSK001"}) is found


def test_an_entry_point_is_its_own_services(tmp_path: Path) -> None:
    text = (
        'services:\n  train:\n    entrypoint: ["python", "train.py"]\n    command: ["--rows", "2"]\n  serve:\n'
        '    command: ["python", "serve.py", "--port", "1"]\n'
    )
    assert not audited(tmp_path, {"train.py": PLAIN, "compose.yaml": text}, select=("CFG008",)).findings


ENTRY = "trl sft --config a.yaml --gradient_accumulation_steps $GA\n"


@pytest.mark.parametrize(
    ("before", "command", "found"),
    [
        ("GA=$(expr 16 / $WORLD_SIZE)\n", f"accelerate launch -m {ENTRY}", True),
        ("let GA=16/WORLD_SIZE\n", f"accelerate launch -m {ENTRY}", True),
        ('GA=$(echo "16 / $WORLD_SIZE" | bc)\n', f"accelerate launch -m {ENTRY}", True),
        (
            "GA=$(python -c \"import os; print(16 // int(os.environ['WORLD_SIZE']))\")\n",
            f"accelerate launch -m {ENTRY}",
            True,
        ),
        ("GA=$((16 / WORLD_SIZE))\n", "axolotl train a.yml --gradient-accumulation-steps $GA\n", True),
        ("GA=$((16 / WORLD_SIZE))\n", "llamafactory-cli train a.yaml gradient_accumulation_steps=$GA\n", True),
        ("WORLD_SIZE=4\nGA=$(expr 16 / $WORLD_SIZE)\n", f"accelerate launch -m {ENTRY}", False),
        ("GA=$(expr 16 / $GPUS)\n", f"accelerate launch -m {ENTRY}", False),
        ("echo $WORLD_SIZE\n", f"accelerate launch -m {ENTRY}", False),
    ],
)
def test_ranks_that_are_counted_before_there_are_any(before: str, command: str, found: bool, tmp_path: Path) -> None:
    assert (
        bool(audited(tmp_path, {"run.sh": before + command, "a.yaml": FACTORY}, select=("DST051",)).findings) is found
    )


def test_a_precision_that_a_comment_of_the_launcher_claims(tmp_path: Path) -> None:
    run = "# {}training on 4 GPUs\naccelerate launch --config_file a.yaml train.py\n"
    files = {"train.py": LOOP, "a.yaml": NONE.format("'no'")}
    assert audited(tmp_path, {**files, "run.sh": run.format("bf16 ")}, select=("PRC006",)).findings
    assert not audited(tmp_path / "plain", {**files, "run.sh": run.format("")}, select=("PRC006",)).findings


@pytest.mark.parametrize(
    ("said", "run", "found"),
    [
        (
            "ZeRO-2 keeps the optimizer sharded.",
            "accelerate launch --num_processes 4 -m trl.scripts.sft --config a.yaml\n",
            True,
        ),
        ("It is trained on 4 GPUs.", "accelerate launch --num_processes 4 -m trl.scripts.sft --config a.yaml\n", True),
        ("ZeRO-2 can be used if memory is short.", "accelerate launch -m trl.scripts.sft --config a.yaml\n", False),
        (
            "ZeRO-2 keeps the optimizer sharded.",
            "accelerate launch -m trl.scripts.sft --config a.yaml --deepspeed ds.json\n",
            False,
        ),
    ],
)
def test_a_deepspeed_file_that_nothing_names(said: str, run: str, found: bool, tmp_path: Path) -> None:
    files = {
        "a.yaml": "model_name_or_path: a/b\ndataset_name: d.jsonl\noutput_dir: o\nmax_length: 512\n",
        "ds.json": '{"train_micro_batch_size_per_gpu": "auto", "zero_optimization": {"stage": 2}}',
        "README.md": f"# x\n\n{said}\n",
        "run.sh": run,
    }
    assert bool(audited(tmp_path, files, select=("CFG010",)).findings) is found
