import os

import hydra
import torch
from datasets import load_dataset
from omegaconf import DictConfig, OmegaConf
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


def encode(row, tokenizer, max_length):
    prompt = tokenizer.apply_chat_template(row["messages"][:-1], add_generation_prompt=True)
    full = tokenizer.apply_chat_template(row["messages"])
    if full[: len(prompt)] != prompt:
        raise ValueError("the prompt is not a prefix of the whole dialog; check the chat template")
    labels = [-100] * len(prompt) + full[len(prompt) :]
    ids, labels = full[:max_length], labels[:max_length]
    return {"input_ids": ids, "attention_mask": [1] * len(ids), "labels": labels}


def build_model(cfg, local_rank):
    model = AutoModelForCausalLM.from_pretrained(
        cfg.model.name,
        quantization_config=BitsAndBytesConfig(
            load_in_4bit=True,
            bnb_4bit_quant_type="nf4",
            bnb_4bit_compute_dtype=torch.bfloat16,
            bnb_4bit_use_double_quant=True,
        ),
        dtype=torch.bfloat16,
        attn_implementation="sdpa",
        device_map={"": local_rank},
    )
    model.config.use_cache = False
    model = prepare_model_for_kbit_training(
        model, use_gradient_checkpointing=True, gradient_checkpointing_kwargs={"use_reentrant": False}
    )
    model = get_peft_model(model, LoraConfig(**OmegaConf.to_container(cfg.lora)))
    return model


@hydra.main(version_base="1.3", config_path="conf", config_name="config")
def main(cfg: DictConfig):
    args = TrainingArguments(**OmegaConf.to_container(cfg.trainer, resolve=True))
    set_seed(args.seed)
    local_rank = int(os.environ.get("LOCAL_RANK", "0"))

    tokenizer = AutoTokenizer.from_pretrained(cfg.model.name)
    raw = load_dataset("json", data_files=cfg.data.file, split="train")
    with args.main_process_first(desc="tokenise"):
        data = raw.map(
            encode,
            fn_kwargs={"tokenizer": tokenizer, "max_length": cfg.data.max_length},
            remove_columns=raw.column_names,
            num_proc=8,
        )
        data = data.filter(lambda row: any(x != -100 for x in row["labels"]), num_proc=8)
        data = data.train_test_split(test_size=cfg.data.eval_fraction, seed=args.seed)

    trainer = Trainer(
        model=build_model(cfg, local_rank),
        args=args,
        train_dataset=data["train"],
        eval_dataset=data["test"],
        processing_class=tokenizer,
        data_collator=DataCollatorForSeq2Seq(tokenizer, padding="longest", pad_to_multiple_of=8),
    )
    last = get_last_checkpoint(args.output_dir) if os.path.isdir(args.output_dir) else None
    trainer.train(resume_from_checkpoint=last)
    trainer.save_model()


if __name__ == "__main__":
    main()
