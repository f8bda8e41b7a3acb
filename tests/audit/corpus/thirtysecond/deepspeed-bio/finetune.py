import torch
from datasets import load_from_disk
from peft import LoraConfig, get_peft_model
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    DataCollatorForLanguageModeling,
    Trainer,
    TrainingArguments,
)

from args import GRAD_ACC, MICRO, get_parser


def main():
    a = get_parser().parse_args()

    tok = AutoTokenizer.from_pretrained(a.model)   # pad is <|endoftext|>, generation stops on it as well
    tok.pad_token = "<|fim_pad|>"                  # never in the reports, so that EOS keeps its label

    model = AutoModelForCausalLM.from_pretrained(
        a.model,
        dtype=torch.float32,
        device_map="auto",
        attn_implementation="sdpa",
    )
    model.config.use_cache = False
    model.config.pad_token_id = tok.pad_token_id
    model = get_peft_model(
        model,
        LoraConfig(r=16, lora_alpha=32, lora_dropout=0.05, target_modules="all-linear", task_type="CAUSAL_LM"),
    )

    data = load_from_disk(a.cache)
    targs = TrainingArguments(
        output_dir=a.output_dir,
        per_device_train_batch_size=MICRO,
        per_device_eval_batch_size=MICRO,
        gradient_accumulation_steps=GRAD_ACC,
        learning_rate=a.lr,
        num_train_epochs=a.epochs,
        lr_scheduler_type="cosine",
        warmup_steps=0.03,
        activation_checkpointing=True,
        activation_checkpointing_kwargs={"use_reentrant": True},
        deepspeed=a.deepspeed,
        eval_strategy="steps",
        eval_steps=200,
        save_steps=200,
        save_total_limit=2,
        logging_steps=20,
        dataloader_num_workers=2,
        seed=a.seed,
        report_to="tensorboard",
    )
    trainer = Trainer(
        model=model,
        args=targs,
        train_dataset=data["train"],
        eval_dataset=data["test"],
        processing_class=tok,
        data_collator=DataCollatorForLanguageModeling(tok, mlm=False),
    )
    trainer.train()
    trainer.save_model()


if __name__ == "__main__":
    main()
