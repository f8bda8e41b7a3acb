import sys

import torch
from datasets import load_from_disk
from transformers import (AutoModelForCausalLM, AutoTokenizer, HfArgumentParser, Trainer,
                          TrainingArguments, default_data_collator)
from transformers.trainer_utils import get_last_checkpoint
import os

(args,) = HfArgumentParser(TrainingArguments).parse_yaml_file(sys.argv[1])

name = "HuggingFaceTB/SmolLM2-360M"
tok = AutoTokenizer.from_pretrained(name)
model = AutoModelForCausalLM.from_pretrained(name, dtype=torch.float32, attn_implementation="sdpa")

# ~60 MB, keep it all in RAM rather than on the slow virtual disk
blocks = load_from_disk("blocks", keep_in_memory=True)

trainer = Trainer(
    model=model,
    args=args,
    train_dataset=blocks["train"],
    eval_dataset=blocks["test"],
    data_collator=default_data_collator,
    processing_class=tok,
)
last = get_last_checkpoint(args.output_dir) if os.path.isdir(args.output_dir) else None
trainer.train(resume_from_checkpoint=last)
trainer.save_model("larder-360m/best")
