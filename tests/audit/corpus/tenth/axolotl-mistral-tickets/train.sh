#!/bin/bash
set -euo pipefail
axolotl preprocess config/mistral-qlora.yml
axolotl train config/mistral-qlora.yml
