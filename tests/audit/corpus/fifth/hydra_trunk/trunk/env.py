import os

WORLD = int(os.environ.get("WORLD_SIZE", 1))
MASTER = os.environ.get("MASTER_ADDR", "127.0.0.1")
PORT = os.environ.get("MASTER_PORT", "29511")


def per_rank(global_batch):
    return max(1, global_batch // WORLD)
