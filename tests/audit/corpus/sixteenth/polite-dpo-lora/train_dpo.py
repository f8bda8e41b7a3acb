import os

import torch
from datasets import load_dataset
from omegaconf import OmegaConf
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer, BitsAndBytesConfig
from trl import DPOConfig, DPOTrainer


def conversational(row):
    return {
        "prompt": [{"role": "user", "content": row["question"]}],
        "chosen": [{"role": "assistant", "content": row["polite"]}],
        "rejected": [{"role": "assistant", "content": row["rude"]}],
    }


def main():
    conf = OmegaConf.merge(OmegaConf.load("dpo.yaml"), OmegaConf.from_cli())
    args = DPOConfig(**OmegaConf.to_container(conf.trainer, resolve=True))

    tok = AutoTokenizer.from_pretrained(conf.model)
    tok.pad_token = "<|finetune_right_pad_id|>"
    model = AutoModelForCausalLM.from_pretrained(
        conf.model,
        quantization_config=BitsAndBytesConfig(
            load_in_4bit=True,
            bnb_4bit_quant_type="nf4",
            bnb_4bit_use_double_quant=True,
            bnb_4bit_compute_dtype=torch.bfloat16,
        ),
        torch_dtype=torch.bfloat16,
        attn_implementation="sdpa",
        device_map={"": int(os.environ.get("LOCAL_RANK", 0))},
        use_cache=False,
    )

    ds = load_dataset("json", data_files=conf.data, split="train")
    ds = ds.map(conversational, remove_columns=ds.column_names)

    trainer = DPOTrainer(
        model=model,
        ref_model=None,
        args=args,
        train_dataset=ds,
        processing_class=tok,
        peft_config=LoraConfig(task_type="CAUSAL_LM", **OmegaConf.to_container(conf.lora)),
    )
    trainer.train(resume_from_checkpoint=conf.resume)
    trainer.save_model()


if __name__ == "__main__":
    main()
