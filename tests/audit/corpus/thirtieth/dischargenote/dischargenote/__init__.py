"""Ward notes in, discharge letters out."""

MODEL = "Qwen/Qwen2.5-1.5B"
MAX_LEN = 2048
