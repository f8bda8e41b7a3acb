"""Start training on this node: python launch.py --gpus 4"""
import os
import subprocess

import click

GLOBAL_BATCH = 64


@click.command()
@click.option("--gpus", default=4, show_default=True)
@click.option("--micro-batch", default=8, show_default=True)
@click.option("--epochs", default=3, show_default=True)
def main(gpus, micro_batch, epochs):
    world = int(os.environ.get("WORLD_SIZE", "1"))
    accum = max(1, GLOBAL_BATCH // (micro_batch * world))
    cmd = [
        "torchrun", "--standalone", f"--nproc_per_node={gpus}", "train.py",
        f"--batch_size={micro_batch}",
        f"--accum={accum}",
        f"--epochs={epochs}",
    ]
    print(" ".join(cmd))
    subprocess.run(cmd, check=True)


if __name__ == "__main__":
    main()
