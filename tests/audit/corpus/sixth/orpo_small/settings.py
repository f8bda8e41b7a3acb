from pathlib import Path

ROOT = Path(__file__).parent
DATA = ROOT / "data" / "pairs.jsonl"
OUT = ROOT / "out" / "orpo-0.5b"

MODEL = "Qwen/Qwen2.5-0.5B-Instruct"
REVISION = "main"

MAX_LEN = 1024
MAX_PROMPT = 512
BETA = 0.1
LR = 8e-6
EPOCHS = 3

# one H100 80GB; 64 pairs an update
BATCH = 1
ACCUM = 64
