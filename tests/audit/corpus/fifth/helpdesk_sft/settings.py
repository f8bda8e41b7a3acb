"""Everything that changes between runs lives here (sorry)."""
import os

BASE_MODEL = os.environ.get("BASE_MODEL", "Qwen/Qwen2.5-3B")
TRAIN_FILE = "data/tickets_train.jsonl"   # 412k rows on the share; a sample is committed
DEV_FILE = "data/tickets_dev.jsonl"
RUN_DIR = os.environ.get("RUN_DIR", "/mnt/runs/helpdesk-v4")

MAX_LEN = 4096
LR = 1e-5
EPOCHS = 2
MICRO_BATCH = 2
ACCUM = 16
SEED = 1234
