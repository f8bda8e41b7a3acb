#!/bin/bash
# ./train.sh chat | ./train.sh qa
set -euo pipefail
STEP=${1:?chat or qa}
export AXOLOTL_DO_NOT_TRACK=1
export CUDA_VISIBLE_DEVICES=0

axolotl preprocess "configs/$STEP.yml"

# everything else (batch, lr, ...) is in the yaml
axolotl train "configs/$STEP.yml" --gradient-accumulation-steps 1 --output-dir "./out/$STEP"

axolotl merge-lora "configs/$STEP.yml" --lora-model-dir "./out/$STEP"
