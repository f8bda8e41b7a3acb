accelerate launch --num_processes 2 sft_lora.py --config recipes/qwen.yaml
