import os

import torch
import typer
from datasets import load_dataset
from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    BitsAndBytesConfig,
    DataCollatorForSeq2Seq,
    Trainer,
    TrainingArguments,
    set_seed,
)
from transformers.trainer_utils import get_last_checkpoint

NAME = "Qwen/Qwen2.5-14B-Instruct"
REENTRANT = {"use_reentrant": False}


def encode(row, tok, limit):
    turns = [{"role": "user", "content": row["question"]}]
    prompt = tok.apply_chat_template(turns, add_generation_prompt=True)
    answer = tok(row["answer"] + tok.eos_token, add_special_tokens=False)["input_ids"]
    ids = prompt + answer
    return {
        "input_ids": ids,
        "attention_mask": [1] * len(ids),
        "labels": [-100] * len(prompt) + answer,
        "fits": len(ids) <= limit,
    }


def main(
    data: str = typer.Option(...),
    out: str = typer.Option("runs/faq"),
    global_batch: int = typer.Option(64),
    micro_batch: int = typer.Option(1),
    max_tokens: int = typer.Option(1024),
    seed: int = typer.Option(11),
):
    set_seed(seed)
    world = int(os.environ.get("WORLD_SIZE", "1"))
    local = int(os.environ.get("LOCAL_RANK", "0"))
    accum, rest = divmod(global_batch, micro_batch * world)
    if rest or not accum:
        raise typer.BadParameter(f"global batch {global_batch} is no multiple of {micro_batch} x {world}")

    args = TrainingArguments(
        output_dir=out,
        per_device_train_batch_size=micro_batch,
        gradient_accumulation_steps=accum,
        learning_rate=1e-4,
        lr_scheduler_type="cosine",
        warmup_ratio=0.03,
        num_train_epochs=2,
        bf16=True,
        optim="paged_adamw_8bit",
        gradient_checkpointing=True,
        gradient_checkpointing_kwargs=REENTRANT,
        ddp_find_unused_parameters=False,
        dataloader_num_workers=2,
        logging_steps=10,
        save_steps=100,
        save_total_limit=2,
        report_to="none",
        seed=seed,
    )

    tok = AutoTokenizer.from_pretrained(NAME)
    raw = load_dataset("json", data_files=data, split="train")
    with args.main_process_first(desc="tokenize"):
        ds = raw.map(encode, fn_kwargs={"tok": tok, "limit": max_tokens}, num_proc=4, remove_columns=raw.column_names)
        ds = ds.filter(lambda fits: fits, input_columns="fits").remove_columns("fits")

    model = AutoModelForCausalLM.from_pretrained(
        NAME,
        quantization_config=BitsAndBytesConfig(
            load_in_4bit=True,
            bnb_4bit_quant_type="nf4",
            bnb_4bit_use_double_quant=True,
            bnb_4bit_compute_dtype=torch.bfloat16,
        ),
        torch_dtype=torch.bfloat16,
        attn_implementation="sdpa",
        device_map={"": local},
    )
    model = prepare_model_for_kbit_training(model, use_gradient_checkpointing=True, gradient_checkpointing_kwargs=REENTRANT)
    model = get_peft_model(
        model, LoraConfig(r=16, lora_alpha=32, lora_dropout=0.05, target_modules="all-linear", task_type="CAUSAL_LM")
    )

    trainer = Trainer(
        model=model,
        args=args,
        train_dataset=ds,
        data_collator=DataCollatorForSeq2Seq(tok, padding=True, label_pad_token_id=-100),
        processing_class=tok,
    )
    last = get_last_checkpoint(out) if os.path.isdir(out) else None
    trainer.train(resume_from_checkpoint=last)
    trainer.save_model()


if __name__ == "__main__":
    typer.run(main)
