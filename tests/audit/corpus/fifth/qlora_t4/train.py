import os

import torch
from datasets import load_from_disk
from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training
from transformers import AutoModelForCausalLM, AutoTokenizer, BitsAndBytesConfig, Trainer, TrainingArguments, set_seed
from transformers.trainer_utils import get_last_checkpoint

import common as C
from collate import Pad

CKPT = {"use_reentrant": False}


def main():
    set_seed(C.SEED)
    local = int(os.environ.get("LOCAL_RANK", 0))
    world = int(os.environ.get("WORLD_SIZE", 1))
    ds = load_from_disk(C.TOK)
    tok = AutoTokenizer.from_pretrained(C.MODEL)

    model = AutoModelForCausalLM.from_pretrained(
        C.MODEL,
        quantization_config=BitsAndBytesConfig(
            load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=torch.float16, bnb_4bit_use_double_quant=True
        ),
        dtype=torch.float16,
        device_map={"": local},
        attn_implementation="sdpa",
    )
    model.config.use_cache = False
    model = prepare_model_for_kbit_training(model, use_gradient_checkpointing=True, gradient_checkpointing_kwargs=CKPT)
    model = get_peft_model(
        model, LoraConfig(r=16, lora_alpha=32, lora_dropout=0.05, target_modules="all-linear", task_type="CAUSAL_LM")
    )

    args = TrainingArguments(
        output_dir=C.OUT,
        num_train_epochs=2,
        per_device_train_batch_size=2,
        gradient_accumulation_steps=C.ROWS_PER_UPDATE // (2 * world),
        gradient_checkpointing=True,
        gradient_checkpointing_kwargs=CKPT,
        learning_rate=2e-4,
        warmup_ratio=0.03,
        lr_scheduler_type="cosine",
        fp16=True,
        optim="paged_adamw_8bit",
        group_by_length=True,
        length_column_name="length",
        ddp_find_unused_parameters=False,
        dataloader_num_workers=2,
        logging_steps=10,
        save_steps=50,
        save_total_limit=2,
        seed=C.SEED,
        report_to="none",
    )
    trainer = Trainer(
        model=model, args=args, train_dataset=ds["train"], data_collator=Pad(tok.pad_token_id)
    )
    last = get_last_checkpoint(C.OUT) if os.path.isdir(C.OUT) else None
    trainer.train(resume_from_checkpoint=last)

    if trainer.is_world_process_zero():
        model.save_pretrained(os.path.join(C.OUT, "adapter"))
        tok.save_pretrained(os.path.join(C.OUT, "adapter"))


if __name__ == "__main__":
    main()
