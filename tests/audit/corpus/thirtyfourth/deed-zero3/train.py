import os
from dataclasses import dataclass, field

from datasets import load_from_disk
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    HfArgumentParser,
    Trainer,
    TrainingArguments,
    default_data_collator,
    set_seed,
)
from transformers.trainer_utils import get_last_checkpoint


@dataclass
class RunArguments:
    blocks: str = field()
    model_name: str = field()


def with_labels(batch):
    return {"input_ids": batch["input_ids"], "labels": [list(b) for b in batch["input_ids"]]}


def main():
    run, args = HfArgumentParser((RunArguments, TrainingArguments)).parse_args_into_dataclasses()
    set_seed(args.seed)

    data = load_from_disk(run.blocks)
    data.set_transform(with_labels)
    args.remove_unused_columns = False

    tokenizer = AutoTokenizer.from_pretrained(run.model_name)
    model = AutoModelForCausalLM.from_pretrained(
        run.model_name,
        attn_implementation="sdpa",
        device_map="auto",
    )
    model.config.use_cache = False

    trainer = Trainer(
        model=model,
        args=args,
        train_dataset=data,
        data_collator=default_data_collator,
        processing_class=tokenizer,
    )
    last = get_last_checkpoint(args.output_dir) if os.path.isdir(args.output_dir) else None
    trainer.train(resume_from_checkpoint=last)
    trainer.save_model()


if __name__ == "__main__":
    main()
