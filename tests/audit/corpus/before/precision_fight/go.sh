accelerate launch --config_file accelerate.yaml sft.py
