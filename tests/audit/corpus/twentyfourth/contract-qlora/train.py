import os
from dataclasses import dataclass, field

import torch
from accelerate import PartialState
from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer, BitsAndBytesConfig, HfArgumentParser, set_seed
from transformers.trainer_utils import get_last_checkpoint
from trl import SFTConfig, SFTTrainer


@dataclass
class ScriptArgs:
    model: str = field(default="Qwen/Qwen2.5-14B-Instruct")
    data: str = field(default="data/clauses.jsonl")


def main():
    script, cfg = HfArgumentParser((ScriptArgs, SFTConfig)).parse_args_into_dataclasses()
    set_seed(cfg.seed)

    tok = AutoTokenizer.from_pretrained(script.model)
    quant = BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=torch.bfloat16,
    )
    # one whole copy on each rank's own card
    model = AutoModelForCausalLM.from_pretrained(
        script.model,
        quantization_config=quant,
        torch_dtype=torch.bfloat16,
        attn_implementation="flash_attention_2",
        device_map={"": PartialState().local_process_index},
    )
    model.config.use_cache = False

    # rows: {"prompt": [user message], "completion": [assistant message]}
    ds = load_dataset("json", data_files=script.data, split="train")

    trainer = SFTTrainer(
        model=model,
        args=cfg,
        train_dataset=ds,
        processing_class=tok,
        peft_config=LoraConfig(
            r=32, lora_alpha=64, lora_dropout=0.05, target_modules="all-linear", task_type="CAUSAL_LM"
        ),
    )
    last = get_last_checkpoint(cfg.output_dir) if os.path.isdir(cfg.output_dir) else None
    trainer.train(resume_from_checkpoint=last)
    trainer.save_model()


if __name__ == "__main__":
    main()
