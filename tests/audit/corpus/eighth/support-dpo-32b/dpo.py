"""DPO from a YAML recipe. Flags on the command line win over the recipe."""
from dataclasses import dataclass, field

from datasets import load_from_disk
from transformers import AutoTokenizer
from transformers.trainer_utils import get_last_checkpoint
from trl import DPOConfig, DPOTrainer, ModelConfig, TrlParser, get_peft_config


@dataclass
class Pairs:
    pairs: str = field(metadata={"help": "dataset with prompt/chosen/rejected as messages, from save_to_disk"})


def main(data_args: Pairs, args: DPOConfig, model_args: ModelConfig) -> None:
    args.model_init_kwargs = {
        "dtype": model_args.dtype,
        "attn_implementation": model_args.attn_implementation,
        "use_cache": False,
    }
    tokenizer = AutoTokenizer.from_pretrained(model_args.model_name_or_path)

    data = load_from_disk(data_args.pairs)
    # somebody's export had both answers equal
    data = data.filter(lambda r: r["chosen"] != r["rejected"], num_proc=args.dataset_num_proc)

    trainer = DPOTrainer(
        model=model_args.model_name_or_path,
        # no ref_model: the adapter is switched off for it
        args=args,
        train_dataset=data,
        processing_class=tokenizer,
        peft_config=get_peft_config(model_args),
    )
    last = get_last_checkpoint(args.output_dir)
    if last:
        trainer.accelerator.print("continue from", last)
    trainer.train(resume_from_checkpoint=last)
    trainer.save_model(args.output_dir)


if __name__ == "__main__":
    parser = TrlParser((Pairs, DPOConfig, ModelConfig))
    main(*parser.parse_args_and_config())
