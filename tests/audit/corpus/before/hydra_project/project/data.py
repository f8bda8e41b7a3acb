from datasets import load_from_disk


def load(cfg):
    return load_from_disk("data/tokens")
