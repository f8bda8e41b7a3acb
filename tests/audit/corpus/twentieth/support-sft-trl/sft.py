from datasets import load_dataset
from transformers import AutoTokenizer, set_seed
from trl import ModelConfig, ScriptArguments, SFTConfig, SFTTrainer, TrlParser, get_peft_config


def main():
    parser = TrlParser((ScriptArguments, SFTConfig, ModelConfig))
    script, args, model_config = parser.parse_args_and_config()
    set_seed(args.seed)

    args.model_init_kwargs = {
        "revision": model_config.model_revision,
        "attn_implementation": model_config.attn_implementation,
        "torch_dtype": model_config.torch_dtype,
        "use_cache": False,
    }
    tokenizer = AutoTokenizer.from_pretrained(
        model_config.model_name_or_path, revision=model_config.model_revision
    )
    data = load_dataset("json", data_files={"train": "data/train.jsonl", "test": "data/test.jsonl"})

    trainer = SFTTrainer(
        model=model_config.model_name_or_path,
        args=args,
        train_dataset=data[script.dataset_train_split],
        eval_dataset=data[script.dataset_test_split],
        processing_class=tokenizer,
        peft_config=get_peft_config(model_config),
    )
    trainer.train(resume_from_checkpoint=args.resume_from_checkpoint)
    trainer.save_model(args.output_dir)


if __name__ == "__main__":
    main()
