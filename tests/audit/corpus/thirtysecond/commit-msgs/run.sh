#!/bin/sh
# ./run.sh sft | ./run.sh sft_lora | ./run.sh dpo
set -eu
name=$1
case "$name" in
  sft*) cmd=sft ;;
  dpo*) cmd=dpo ;;
  *) echo "which one? sft, sft_lora, dpo" >&2; exit 2 ;;
esac
mkdir -p logs
trl "$cmd" --config "configs/$name.yaml" --accelerate_config multi_gpu --num_processes 2 2>&1 | tee "logs/$name.log"
