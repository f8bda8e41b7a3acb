#!/usr/bin/env bash
set -euo pipefail
export PYTHONPATH=src
accelerate launch --config_file accelerate_config.yaml -m summ.train --config configs/base.json
