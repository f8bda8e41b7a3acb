#!/bin/bash
# fresh Ubuntu, driver 550 already there
set -e
python3.11 -m venv ~/ax && . ~/ax/bin/activate
pip install -U pip packaging setuptools wheel ninja
pip install torch==2.6.0 --index-url https://download.pytorch.org/whl/cu124
pip install --no-build-isolation "axolotl==0.9.2"
