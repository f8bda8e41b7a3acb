import subprocess
import sys

import yaml

FORWARDED = (
    "model_name_or_path",
    "train_file",
    "max_seq_length",
    "output_dir",
    "num_train_epochs",
    "learning_rate",
    "lr_scheduler_type",
    "per_device_train_batch_size",
    "gradient_accumulation_steps",
    "save_steps",
    "logging_steps",
    "seed",
)


def build(path):
    with open(path) as fh:
        cfg = yaml.safe_load(fh)
    cmd = [
        "torchrun", "--standalone", f"--nproc_per_node={cfg['num_processes']}",
        "-m", "tulu_lite.finetune",
    ]
    for key in FORWARDED:
        cmd += [f"--{key}", str(cfg[key])]
    cmd += ["--bf16", "true", "--dataloader_num_workers", "4"]
    cmd += ["--remove_unused_columns", "false", "--save_total_limit", "2"]
    cmd += ["--use_flash_attn", "false"]
    cmd += ["--report_to", "tensorboard"]
    return cmd


if __name__ == "__main__":
    command = build(sys.argv[1])
    print(" ".join(command))
    sys.exit(subprocess.call(command))
