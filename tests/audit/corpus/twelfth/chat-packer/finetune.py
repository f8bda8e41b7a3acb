from datasets import load_dataset
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    HfArgumentParser,
    Trainer,
    TrainingArguments,
    set_seed,
)

from arguments import FlatArguments
from packing import PackedCollator, encode, pack


def main():
    (args,) = HfArgumentParser(FlatArguments).parse_args_into_dataclasses()
    set_seed(args.seed)

    tokenizer = AutoTokenizer.from_pretrained(args.model_name_or_path)
    model = AutoModelForCausalLM.from_pretrained(args.model_name_or_path, attn_implementation="sdpa")

    raw = load_dataset("json", data_files=args.dataset_path, split="train").shuffle(seed=args.seed)
    rows = raw.map(
        encode,
        fn_kwargs={"tokenizer": tokenizer, "max_len": args.max_seq_length},
        remove_columns=raw.column_names,
        num_proc=8,
    )
    packed = pack(rows, args.max_seq_length)

    training_args = TrainingArguments(
        output_dir=args.output_dir,
        per_device_train_batch_size=args.per_device_train_batch_size,
        gradient_accumulation_steps=args.gradient_accumulation_steps,
        num_train_epochs=args.num_train_epochs,
        learning_rate=args.learning_rate,
        lr_scheduler_type="linear",
        warmup_ratio=args.warmup_ratio,
        weight_decay=args.weight_decay,
        gradient_checkpointing=args.gradient_checkpointing,
        gradient_checkpointing_kwargs={"use_reentrant": False},
        bf16=True,
        optim="adamw_torch_fused",
        remove_unused_columns=False,
        dataloader_num_workers=4,
        logging_steps=args.logging_steps,
        save_strategy="epoch",
        seed=args.seed,
        report_to="none",
    )
    trainer = Trainer(
        model=model,
        args=training_args,
        train_dataset=packed,
        data_collator=PackedCollator(tokenizer.pad_token_id, args.max_seq_length),
        processing_class=tokenizer,
    )
    trainer.train(resume_from_checkpoint=args.resume_from_checkpoint)
    trainer.save_model(args.output_dir)


if __name__ == "__main__":
    main()
