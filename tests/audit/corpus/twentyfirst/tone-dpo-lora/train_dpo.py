import os

import torch
from datasets import load_dataset
from omegaconf import OmegaConf
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.trainer_utils import get_last_checkpoint
from trl import DPOConfig, DPOTrainer


def main():
    conf = OmegaConf.merge(OmegaConf.load("tone.yaml"), OmegaConf.from_cli())
    plain = OmegaConf.to_container(conf, resolve=True)
    args = DPOConfig(**plain["trainer"])

    tok = AutoTokenizer.from_pretrained(plain["model"])
    model = AutoModelForCausalLM.from_pretrained(
        plain["model"],
        torch_dtype=torch.bfloat16,
        attn_implementation="sdpa",
        device_map={"": int(os.environ.get("LOCAL_RANK", "0"))},
    )
    ds = load_dataset("json", data_files=plain["pairs"], split="train")
    ds = ds.train_test_split(test_size=0.03, seed=args.seed)

    trainer = DPOTrainer(
        model=model,
        ref_model=None,
        args=args,
        train_dataset=ds["train"],
        eval_dataset=ds["test"],
        processing_class=tok,
        peft_config=LoraConfig(task_type="CAUSAL_LM", **plain["lora"]),
    )
    last = get_last_checkpoint(args.output_dir) if os.path.isdir(args.output_dir) else None
    trainer.train(resume_from_checkpoint=last)
    trainer.save_model(args.output_dir)


if __name__ == "__main__":
    main()
