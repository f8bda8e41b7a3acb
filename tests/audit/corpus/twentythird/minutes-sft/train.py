import os
import sys

import torch
from datasets import load_dataset
from omegaconf import OmegaConf
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer, set_seed
from transformers.trainer_utils import get_last_checkpoint
from trl import SFTConfig, SFTTrainer


def main(path, overrides):
    conf = OmegaConf.load(path)
    OmegaConf.set_struct(conf, True)
    conf = OmegaConf.merge(conf, OmegaConf.from_dotlist(overrides))
    set_seed(conf.seed)

    tok = AutoTokenizer.from_pretrained(conf.model)
    model = AutoModelForCausalLM.from_pretrained(
        conf.model,
        torch_dtype=torch.bfloat16,
        attn_implementation="flash_attention_2",
    )
    # prompt/completion rows: only the completion bears loss
    train = load_dataset("json", data_files=conf.data, split="train")

    args = SFTConfig(
        output_dir=conf.output_dir,
        max_length=4096,
        packing=True,
        packing_strategy="bfd",
        completion_only_loss=True,
        num_train_epochs=conf.epochs,
        per_device_train_batch_size=2,
        gradient_accumulation_steps=16,
        learning_rate=conf.learning_rate,
        lr_scheduler_type="cosine",
        warmup_ratio=0.03,
        bf16=True,
        optim="adamw_torch_fused",
        gradient_checkpointing=True,
        gradient_checkpointing_kwargs={"use_reentrant": False},
        dataset_num_proc=8,
        dataloader_num_workers=2,
        logging_steps=10,
        save_steps=100,
        save_total_limit=2,
        report_to="none",
        seed=conf.seed,
    )
    trainer = SFTTrainer(
        model=model,
        args=args,
        train_dataset=train,
        processing_class=tok,
        peft_config=LoraConfig(r=16, lora_alpha=32, lora_dropout=0.05, target_modules="all-linear", task_type="CAUSAL_LM"),
    )
    last = get_last_checkpoint(conf.output_dir) if os.path.isdir(conf.output_dir) else None
    trainer.train(resume_from_checkpoint=last)
    trainer.save_model()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
