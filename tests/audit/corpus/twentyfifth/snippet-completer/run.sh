#!/bin/bash
set -e
CUDA_VISIBLE_DEVICES=0 python -m completer.train "$@"
