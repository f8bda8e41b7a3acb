"""Everything that both the parent and the workers have to agree on."""
import os

MODEL = "HuggingFaceTB/SmolLM2-1.7B"
MAX_LEN = 768
MICRO_BATCH = 8
GLOBAL_BATCH = 16
LR = 2e-5
SEED = 11

WORLD_SIZE = int(os.environ.get("WORLD_SIZE", "1"))
# gradients of 16 clauses per update, whatever the number of cards
ACCUM = max(1, GLOBAL_BATCH // (MICRO_BATCH * WORLD_SIZE))
