import subprocess
import sys

import yaml

FORWARD = [
    "model_name_or_path",
    "train_file",
    "output_dir",
    "per_device_train_batch_size",
    "gradient_accumulation_steps",
    "learning_rate",
    "num_train_epochs",
    "logging_steps",
]


def build(path, gpus):
    with open(path) as fh:
        conf = yaml.safe_load(fh)
    cmd = f"accelerate launch --num_processes {gpus} -m tuneworks.finetune"
    for key in FORWARD:
        if key in conf:
            cmd += f" --{key} {conf[key]}"
    return cmd


if __name__ == "__main__":
    command = build(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "1")
    print(command)
    subprocess.run(command.split(), check=True)
