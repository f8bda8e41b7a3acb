import subprocess
import sys

import yaml


def main():
    with open(sys.argv[1]) as f:
        cfg = yaml.safe_load(f)
    flags = []
    for key, value in cfg.items():
        if value:
            flags += [f"--{key}", str(value)]
    cmd = [
        "accelerate", "launch",
        "--multi_gpu", "--num_processes", "4", "--num_machines", "1",
        "--mixed_precision", "bf16", "--dynamo_backend", "no",
        "-m", "tulip.finetune",
    ] + flags
    print(" ".join(cmd), flush=True)
    sys.exit(subprocess.call(cmd))


if __name__ == "__main__":
    main()
