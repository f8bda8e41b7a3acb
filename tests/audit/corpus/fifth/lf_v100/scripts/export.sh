#!/bin/bash
set -eu
cd "$(dirname "$0")/.."
llamafactory-cli export configs/qwen_export.yaml
