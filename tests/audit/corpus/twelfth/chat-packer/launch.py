import subprocess
import sys

import yaml

GPUS = 8


def main(path):
    with open(path) as f:
        cfg = yaml.safe_load(f)
    cmd = ["torchrun", "--standalone", f"--nproc_per_node={GPUS}", "finetune.py"]
    for key, value in cfg.items():
        if value:
            cmd += [f"--{key}", str(value)]
    print(" ".join(cmd))
    subprocess.run(cmd, check=True)


if __name__ == "__main__":
    main(sys.argv[1])
