"""accelerate launch --config_file recipes/accelerate/zero3.yaml scripts/sft.py --config RECIPE"""
import logging

from datasets import load_dataset
from transformers import AutoTokenizer
from trl import (
    ModelConfig,
    ScriptArguments,
    SFTConfig,
    SFTTrainer,
    TrlParser,
    get_kbit_device_map,
    get_peft_config,
    get_quantization_config,
)

logger = logging.getLogger(__name__)


def model_kwargs(model_args, training_args):
    quantization_config = get_quantization_config(model_args)
    return dict(
        revision=model_args.model_revision,
        attn_implementation=model_args.attn_implementation,
        torch_dtype=model_args.torch_dtype,
        use_cache=not training_args.gradient_checkpointing,
        device_map=get_kbit_device_map() if quantization_config is not None else None,
        quantization_config=quantization_config,
    )


def main(script_args, training_args, model_args):
    logging.basicConfig(level=logging.INFO)
    training_args.model_init_kwargs = model_kwargs(model_args, training_args)

    tokenizer = AutoTokenizer.from_pretrained(model_args.model_name_or_path)
    dataset = load_dataset(script_args.dataset_name, name=script_args.dataset_config)
    evaluating = training_args.eval_strategy != "no"

    trainer = SFTTrainer(
        model=model_args.model_name_or_path,
        args=training_args,
        train_dataset=dataset[script_args.dataset_train_split],
        eval_dataset=dataset[script_args.dataset_test_split] if evaluating else None,
        processing_class=tokenizer,
        peft_config=get_peft_config(model_args),
    )

    result = trainer.train()
    trainer.log_metrics("train", result.metrics)
    trainer.save_model(training_args.output_dir)
    logger.info("saved to %s", training_args.output_dir)


if __name__ == "__main__":
    parser = TrlParser((ScriptArguments, SFTConfig, ModelConfig))
    main(*parser.parse_args_and_config())
