"""python launch.py configs/small.yaml"""
import subprocess
import sys

import click
import yaml

FORWARD = ["model", "train_file", "output_dir", "epochs", "batch", "accum", "lr"]


@click.command()
@click.argument("config", type=click.Path(exists=True))
@click.option("--dry", is_flag=True)
def main(config, dry):
    with open(config) as f:
        cfg = yaml.safe_load(f)
    cmd = [sys.executable, "train.py"]
    for key in FORWARD:
        if key in cfg:
            cmd += [f"--{key.replace('_', '-')}", str(cfg[key])]
    print(" ".join(cmd))
    if not dry:
        subprocess.run(cmd, check=True)


if __name__ == "__main__":
    main()
