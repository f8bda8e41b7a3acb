#!/bin/bash
export CUDA_VISIBLE_DEVICES=0
llamafactory-cli train medqa_lora.yaml
