"""Promise: what is wrong between the files of a project is found, and the nearest thing that is right is not."""

from pathlib import Path

import pytest

from tests.audit.made_up import audited

SFT = "model_name_or_path: Qwen/Qwen2.5-0.5B\ndataset_name: d.jsonl\n"
FLASH = f"{SFT}attn_implementation: flash_attention_2\n"
BEST = f"{SFT}load_best_model_at_end: true\neval_strategy: epoch\nsave_strategy: epoch\nmetric_for_best_model: "
AXOLOTL = (
    "base_model: Qwen/Qwen2.5-0.5B\ndatasets: [{path: x, type: alpaca}]\nmicro_batch_size: 2\nsequence_len: 2048\n"
)
LAUNCHER = "import subprocess\nFLAGS = {'rate': %r}\nsubprocess.run(['python', 'train.py', *made(FLAGS)])\n"
PARSER = (
    "import argparse\np = argparse.ArgumentParser()\np.add_argument('--lr')\nargs = p.parse_args()\nprint(args.lr)\n"
)
SUM = "ACC=$(( 64 / ${WORLD_SIZE:-1} ))\n"
RUN = "torchrun --nproc_per_node 4 train.py --acc $ACC\n"
DROPS = (
    "import argparse\nfrom accelerate import Accelerator\np = argparse.ArgumentParser()\n"
    "p.add_argument('--mixed_precision', default='no')\nargs = p.parse_args()\naccelerator = Accelerator({})\n"
    "for batch in loader:\n    accelerator.backward(model(**batch).loss)\n    optimizer.step()\n"
)
ACCELERATE = "compute_environment: LOCAL_MACHINE\nnum_machines: 1\nnum_processes: 2\nmixed_precision: 'no'\n"
ASKS = "accelerate launch --config_file a.yaml train.py --mixed_precision bf16\n"
MADE = (
    "from transformers import AutoModelForCausalLM\nfrom trl import SFTConfig, SFTTrainer, TrlParser\n"
    "(args,) = TrlParser((SFTConfig,)).parse_args_and_config()\nmodel = {}\nSFTTrainer(model=model, args=args)\n"
)
KWARGS = "output_dir: out\nmodel_init_kwargs: {dtype: bfloat16}\npacking: false\nmax_length: 512\n"


@pytest.mark.parametrize(
    ("code", "files", "found"),
    [
        ("ATT005", {"sft.yaml": FLASH, "requirements.txt": "torch\ntrl\n"}, True),
        ("ATT005", {"sft.yaml": FLASH, "requirements.txt": "pandas\n"}, False),  # no list of what trains
        ("ATT005", {"sft.yaml": FLASH, "Dockerfile": "FROM a\nRUN pip install \\\n  torch==2.11.0 \\\n  trl\n"}, True),
        (
            "ATT005",
            {"sft.yaml": FLASH, "Dockerfile": "FROM a\nRUN pip install torch && pip install flash-attn\n"},
            False,
        ),
        ("ATT005", {"sft.yaml": f"# T4 here, later an A100\n{FLASH}"}, False),
        ("ATT005", {"sft.yaml": f"# on a T4\n{SFT}attn_implementation: sdpa\n"}, False),
        ("ENV007", {"a.yml": AXOLOTL, "requirements.txt": "axolotl==0.19.0\ntransformers>=5.0\n"}, False),
        (
            "ENV007",
            {"a.yml": AXOLOTL, "requirements.txt": "axolotl==0.19.0\n", "requirements-dev.txt": "trl==1.16.0\n"},
            False,
        ),
        (
            "ENV007",
            {"a.yml": AXOLOTL, "Dockerfile": "RUN pip install llamafactory==0.9.5 transformers==5.17.0\n"},
            True,
        ),
        (
            "ENV007",
            {"a.yml": AXOLOTL, "Dockerfile": "RUN pip install llamafactory==0.9.5 transformers==5.6.0\n"},
            False,
        ),
        ("CKP005", {"sft.yaml": f"{BEST}eval_loss\n"}, False),
        ("CKP005", {"sft.yaml": f"{BEST}accuracy\ngreater_is_better: false\n"}, True),
        ("CKP005", {"sft.yaml": f"{BEST}perplexity\n"}, True),  # by default what does not end in `loss` is to rise
        (
            "CFG010",
            {
                "a.yml": AXOLOTL,
                "b.yml": AXOLOTL,
                "c.yml": AXOLOTL,
                "r.sh": "for j in a b; do axolotl train $j.yml; done\n",
            },
            True,
        ),
        (
            "CFG010",
            {"a.yml": AXOLOTL, "b.yml": AXOLOTL, "r.sh": "for j in a b; do axolotl train $j.yml; done\n"},
            False,
        ),
        ("CFG008", {"launch.py": LAUNCHER % "--rate", "train.py": PARSER}, True),
        ("CFG008", {"launch.py": LAUNCHER % "--lr", "train.py": PARSER}, False),
        ("CFG008", {"launch.py": (LAUNCHER % "--rate").replace("subprocess", "json"), "train.py": PARSER}, False),
        ("DST051", {"run.sh": SUM + RUN, "train.py": PARSER}, True),
        ("DST051", {"run.sh": f"export WORLD_SIZE=4\n{SUM}{RUN}", "train.py": PARSER}, False),
        ("DST051", {"run.sh": f"ACC=8\n{RUN}echo $WORLD_SIZE\n", "train.py": PARSER}, False),
        ("PRC002", {"a.yaml": ACCELERATE, "run.sh": ASKS, "train.py": DROPS.format("")}, True),
        (
            "PRC002",
            {"a.yaml": ACCELERATE, "run.sh": ASKS, "train.py": DROPS.format("mixed_precision=args.mixed_precision")},
            False,
        ),
        (
            "CFG005",
            {
                "r.yaml": KWARGS,
                "train.py": MADE.format("AutoModelForCausalLM.from_pretrained('a/b')"),
                "run.sh": "python train.py --config r.yaml\n",
            },
            True,
        ),
        (
            "CFG005",
            {"r.yaml": KWARGS, "train.py": MADE.format("'a/b'"), "run.sh": "python train.py --config r.yaml\n"},
            False,
        ),
        (
            "LOR002",
            {"r.yaml": "model: m\ndata: d\nout: o\nlr: 1\nmicro: 2\nmax_length: 512\nlora_alpha: 32\nseed: 1\n"},
            False,
        ),
        (
            "CFG011",
            {"sft.yaml": f"{SFT}packing: true\n# documents never see each other\npacking_strategy: wrapped\n"},
            True,
        ),
        (
            "CFG011",
            {"sft.yaml": f"{SFT}packing: true\n# documents never see each other\npacking_strategy: bfd\n"},
            False,
        ),
    ],
)
def test_a_project(tmp_path: Path, code: str, files: dict[str, str], found: bool) -> None:
    assert bool(audited(tmp_path, files, select=(code,)).findings) is found
