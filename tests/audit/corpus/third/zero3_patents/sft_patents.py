"""Claim drafting: LoRA on a 70B base, ZeRO-3 over eight H100."""

import os
from dataclasses import dataclass, field

from datasets import load_from_disk
from peft import LoraConfig
from transformers import AutoTokenizer, HfArgumentParser
from transformers.trainer_utils import get_last_checkpoint
from trl import SFTConfig, SFTTrainer


@dataclass
class RunArgs:
    base: str = field(default="meta-llama/Llama-3.1-70B")
    data: str = field(default="/data/patents_8k", metadata={"help": "made by cut_patents.py: input_ids and labels"})
    rank: int = field(default=16)


def main():
    run, train = HfArgumentParser((RunArgs, SFTConfig)).parse_args_into_dataclasses()

    # Given here and not on the command line, because the trainer loads the model itself: after the arguments
    # exist, so that ZeRO-3 shards it while reading.
    train.model_init_kwargs = {"dtype": "bfloat16", "attn_implementation": "sdpa"}
    # Already token ids with labels. Every row is cut at exactly 8,192 tokens upstream, so there is
    # nothing to pad and packing would not change a thing.
    train.dataset_kwargs = {"skip_prepare_dataset": True}

    data = load_from_disk(run.data)
    tokenizer = AutoTokenizer.from_pretrained(run.base)
    tokenizer.pad_token = "<|finetune_right_pad_id|>"

    trainer = SFTTrainer(
        model=run.base,
        args=train,
        train_dataset=data,
        processing_class=tokenizer,
        peft_config=LoraConfig(
            r=run.rank,
            lora_alpha=2 * run.rank,
            lora_dropout=0.0,
            target_modules="all-linear",
            task_type="CAUSAL_LM",
        ),
    )
    last = get_last_checkpoint(train.output_dir) if os.path.isdir(train.output_dir) else None
    trainer.train(resume_from_checkpoint=last)
    trainer.save_model()


if __name__ == "__main__":
    main()
