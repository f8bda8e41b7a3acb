#!/bin/bash
set -e
cd "$(dirname "$0")/.."

export FORCE_TORCHRUN=1
export NPROC_PER_NODE=4

llamafactory-cli train configs/dpo.yaml
