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


@dataclass
class ModelArgs:
    model_path: str = field(default="Qwen/Qwen2.5-1.5B")
    attn_implementation: str = field(default="flash_attention_2")


@dataclass
class DataArgs:
    train_dir: str = field(metadata={"help": "datasets.save_to_disk folder with input_ids"})


def main():
    parser = HfArgumentParser((ModelArgs, DataArgs, TrainingArguments))
    margs, dargs, targs = parser.parse_args_into_dataclasses()
    targs.optim = "adamw_torch_fused"
    targs.gradient_checkpointing_kwargs = {"use_reentrant": False}
    set_seed(targs.seed)

    tokenizer = AutoTokenizer.from_pretrained(margs.model_path)
    model = AutoModelForCausalLM.from_pretrained(
        margs.model_path,
        attn_implementation=margs.attn_implementation,
    )
    model.config.use_cache = False

    train = load_from_disk(dargs.train_dir)
    train = train.map(
        lambda b: {"labels": b["input_ids"]},
        batched=True,
    )

    trainer = Trainer(
        model=model,
        args=targs,
        train_dataset=train,
        data_collator=default_data_collator,
        processing_class=tokenizer,
    )
    trainer.train()
    trainer.save_model()


if __name__ == "__main__":
    main()
