from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    DataCollatorForSeq2Seq,
    HfArgumentParser,
    Trainer,
    TrainingArguments,
    set_seed,
)

from recipes.arguments import DataArguments, ModelArguments
from recipes.callbacks import ThroughputCallback
from recipes.data import load_train


def main():
    parser = HfArgumentParser((ModelArguments, DataArguments, TrainingArguments))
    model_args, data_args, args = parser.parse_args_into_dataclasses()
    set_seed(args.seed)

    tokenizer = AutoTokenizer.from_pretrained(
        model_args.model_name_or_path,
        revision=model_args.model_revision,
    )
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token

    model = AutoModelForCausalLM.from_pretrained(
        model_args.model_name_or_path,
        revision=model_args.model_revision,
        trust_remote_code=True,
    )
    model.config.use_cache = False

    with args.main_process_first(desc="encode"):
        train_set = load_train(data_args, tokenizer)

    trainer = Trainer(
        model=model,
        args=args,
        train_dataset=train_set,
        data_collator=DataCollatorForSeq2Seq(tokenizer, padding="longest", pad_to_multiple_of=8),
        processing_class=tokenizer,
        callbacks=[ThroughputCallback(data_args.max_seq_length)],
    )
    result = trainer.train()
    trainer.log_metrics("train", result.metrics)
    trainer.save_model()
    trainer.save_state()


if __name__ == "__main__":
    main()
