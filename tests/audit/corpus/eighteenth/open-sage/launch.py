"""python launch.py configs/sage_1b_sft.yaml --gpus 8"""
import subprocess

import fire
import yaml

FORWARDED = [
    "model_name_or_path",
    "train_file",
    "output_dir",
    "max_seq_length",
    "per_device_train_batch_size",
    "gradient_accumulation_steps",
    "learning_rate",
    "num_train_epochs",
    "logging_steps",
]


def launch(config, gpus=8, dry_run=False):
    with open(config) as f:
        cfg = yaml.safe_load(f)

    command = [
        "accelerate", "launch",
        "--multi_gpu",
        "--mixed_precision", "bf16",
        "--num_processes", str(gpus),
        "open_sage/finetune.py",
    ]
    for key in FORWARDED:
        if key in cfg:
            command += [f"--{key}", str(cfg[key])]

    print(" ".join(command))
    if not dry_run:
        subprocess.run(command, check=True)


if __name__ == "__main__":
    fire.Fire(launch)
