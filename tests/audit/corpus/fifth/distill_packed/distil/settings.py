TEACHER = "Qwen/Qwen2.5-7B-Instruct"
STUDENT = "Qwen/Qwen2.5-0.5B-Instruct"
DATA = "data/dialogues.jsonl"
OUT = "runs/distil"

ROW = 8192
ROWS_PER_GPU = 1
ACCUM = 16
WARMUP = 100
EPOCHS = 2
LR = 5e-5
TEMP = 2.0
ALPHA = 0.7
SEED = 31
