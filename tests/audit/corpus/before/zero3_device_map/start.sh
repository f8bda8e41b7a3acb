deepspeed --num_gpus 8 train_llama.py --deepspeed ds_z3.json
