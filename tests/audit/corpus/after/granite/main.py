import os

from datasets import load_dataset
from transformers import HfArgumentParser, set_seed
from trl import SFTConfig, SFTTrainer

from collate import ChatCollator, tokenize
from modeling import adapter, load_model, load_tokenizer
from settings import DataSettings, ModelSettings, RunSettings


def build_config(data, run):
    world = int(os.environ.get("WORLD_SIZE", 1))
    accumulation = run.target_batch // run.batch
    print(f"{world} processes, effective batch {run.target_batch}")
    return SFTConfig(
        output_dir=run.out,
        max_seq_length=data.max_tokens,
        num_train_epochs=run.epochs,
        per_device_train_batch_size=run.batch,
        gradient_accumulation_steps=accumulation,
        learning_rate=run.lr,
        lr_scheduler_type="cosine",
        warmup_steps=0.03,
        bf16=True,
        activation_checkpointing=True,
        activation_checkpointing_kwargs={"use_reentrant": False},
        optim="adamw_torch_fused",
        dataloader_num_workers=data.workers,
        logging_steps=run.log_every,
        save_steps=200,
        save_total_limit=2,
        dataset_kwargs={"skip_prepare_dataset": True},
        remove_unused_columns=False,
        report_to="wandb",
        seed=run.seed,
    )


def main():
    model_s, data_s, run_s = HfArgumentParser((ModelSettings, DataSettings, RunSettings)).parse_args_into_dataclasses()
    set_seed(run_s.seed)
    tokenizer = load_tokenizer(model_s)
    rows = load_dataset("json", data_files=data_s.path, split="train")
    rows = rows.map(tokenize, fn_kwargs={"tokenizer": tokenizer}, num_proc=8, remove_columns=rows.column_names)

    trainer = SFTTrainer(
        model=load_model(model_s),
        args=build_config(data_s, run_s),
        train_dataset=rows,
        data_collator=ChatCollator(tokenizer, data_s.max_tokens),
        processing_class=tokenizer,
        peft_config=adapter(),
    )
    resume = os.path.isdir(run_s.out) and any(d.startswith("checkpoint-") for d in os.listdir(run_s.out))
    trainer.train(resume_from_checkpoint=resume)
    trainer.save_model()


if __name__ == "__main__":
    main()
