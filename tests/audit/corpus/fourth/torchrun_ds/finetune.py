"""Instruction tuning with the Hugging Face Trainer; see scripts/train_4gpu.sh."""
import os
from dataclasses import dataclass, field

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, HfArgumentParser, Trainer, TrainingArguments, set_seed
from transformers.trainer_utils import get_last_checkpoint

from instruction_data import InstructionCollator, InstructionDataset


@dataclass
class ModelArguments:
    model_name_or_path: str = field(default="Qwen/Qwen2.5-7B")
    use_flash_attn: bool = field(default=False, metadata={"help": "Use FlashAttention-2 kernels."})


@dataclass
class DataArguments:
    data_path: str = field(metadata={"help": "JSON lines with one field `text`."})
    max_len: int = field(default=1024, metadata={"help": "Longest row in tokens, the rest is cut."})


def main():
    parser = HfArgumentParser((ModelArguments, DataArguments, TrainingArguments))
    model_args, data_args, training_args = parser.parse_args_into_dataclasses()
    set_seed(training_args.seed)

    tokenizer = AutoTokenizer.from_pretrained(model_args.model_name_or_path)
    train = InstructionDataset(data_args.data_path, tokenizer, data_args.max_len)

    model = AutoModelForCausalLM.from_pretrained(
        model_args.model_name_or_path,
        dtype=torch.bfloat16,
    )
    model.config.use_cache = False

    # the rows are lists and carry nothing but ids and labels
    training_args.remove_unused_columns = False
    trainer = Trainer(
        model=model,
        args=training_args,
        train_dataset=train,
        data_collator=InstructionCollator(tokenizer.pad_token_id),
        processing_class=tokenizer,
    )

    last = None
    if os.path.isdir(training_args.output_dir):
        last = get_last_checkpoint(training_args.output_dir)
    trainer.train(resume_from_checkpoint=last)
    trainer.save_model()


if __name__ == "__main__":
    main()
