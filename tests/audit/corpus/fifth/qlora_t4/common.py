MODEL = "Qwen/Qwen2.5-3B-Instruct"
RAW = "data/clauses.jsonl"
TOK = "data/clauses_tok"
OUT = "runs/clauses"
MAX_LEN = 2048
SEED = 23
ROWS_PER_UPDATE = 32
