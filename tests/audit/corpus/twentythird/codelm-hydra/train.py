import hydra
from datasets import load_dataset
from omegaconf import DictConfig
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    DataCollatorForLanguageModeling,
    Trainer,
    TrainingArguments,
    set_seed,
)


@hydra.main(version_base=None, config_path="conf", config_name="config")
def main(cfg: DictConfig):
    t = cfg.training
    set_seed(t.seed)
    targs = TrainingArguments(
        output_dir=t.output_dir,
        learning_rate=t.learning_rate,
        num_train_epochs=t.epochs,
        per_device_train_batch_size=t.micro_batch,
        gradient_accumulation_steps=t.accum,
        warmup_ratio=0.03,
        lr_scheduler_type="cosine",
        bf16=True,
        optim="adamw_torch_fused",
        gradient_checkpointing=True,
        gradient_checkpointing_kwargs={"use_reentrant": False},
        deepspeed="ds_zero2.json",
        save_steps=t.save_steps,
        save_total_limit=2,
        logging_steps=20,
        report_to="none",
        seed=t.seed,
    )

    tok = AutoTokenizer.from_pretrained(cfg.model)
    model = AutoModelForCausalLM.from_pretrained(cfg.model, attn_implementation="sdpa")

    def encode(rows):
        return tok([c + tok.eos_token for c in rows["code"]], truncation=True, max_length=cfg.data.max_length)

    raw = load_dataset("json", data_files=cfg.data.path, split="train")
    with targs.main_process_first(desc="tokenize"):
        ds = raw.map(encode, batched=True, num_proc=8, remove_columns=raw.column_names)

    trainer = Trainer(
        model=model,
        args=targs,
        train_dataset=ds,
        data_collator=DataCollatorForLanguageModeling(tok, mlm=False),
        processing_class=tok,
    )
    trainer.train()
    trainer.save_model()


if __name__ == "__main__":
    main()
