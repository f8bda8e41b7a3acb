"""What becomes of every key of TRL, transformers, accelerate, Axolotl and LLaMA-Factory."""
