import os

import torch
from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    BitsAndBytesConfig,
    DataCollatorForSeq2Seq,
    HfArgumentParser,
    Trainer,
    TrainingArguments,
    set_seed,
)
from transformers.trainer_utils import get_last_checkpoint

from qlora_legal.args import DataArgs, ModelArgs
from qlora_legal.data import build


def main():
    m, d, t = HfArgumentParser((ModelArgs, DataArgs, TrainingArguments)).parse_args_into_dataclasses()
    set_seed(t.seed)

    tokenizer = AutoTokenizer.from_pretrained(m.model_name, trust_remote_code=m.trust_remote_code)
    model = AutoModelForCausalLM.from_pretrained(
        m.model_name,
        quantization_config=BitsAndBytesConfig(
            load_in_4bit=True,
            bnb_4bit_quant_type="nf4",
            bnb_4bit_use_double_quant=True,
            bnb_4bit_compute_dtype=torch.bfloat16,
        ),
        torch_dtype=torch.bfloat16,
        device_map={"": int(os.environ.get("LOCAL_RANK", 0))},
        trust_remote_code=m.trust_remote_code,
    )
    model.config.use_cache = False
    model = prepare_model_for_kbit_training(
        model,
        use_gradient_checkpointing=t.gradient_checkpointing,
        gradient_checkpointing_kwargs=t.gradient_checkpointing_kwargs,
    )
    model = get_peft_model(
        model,
        LoraConfig(r=m.lora_r, lora_alpha=2 * m.lora_r, lora_dropout=0.05, target_modules="all-linear", task_type="CAUSAL_LM"),
    )

    with t.main_process_first(desc="tokenising"):
        rows = build(d, tokenizer)

    trainer = Trainer(
        model=model,
        args=t,
        train_dataset=rows,
        data_collator=DataCollatorForSeq2Seq(tokenizer, padding="longest", pad_to_multiple_of=8),
        processing_class=tokenizer,
    )
    last = get_last_checkpoint(t.output_dir) if os.path.isdir(t.output_dir) else None
    trainer.train(resume_from_checkpoint=last)
    trainer.save_model()


if __name__ == "__main__":
    main()
