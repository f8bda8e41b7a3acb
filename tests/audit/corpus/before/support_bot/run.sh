#!/bin/bash
set -e
export WANDB_PROJECT=support
accelerate launch --num_processes 1 -m trl.cli sft --config configs/support_bot.yaml
