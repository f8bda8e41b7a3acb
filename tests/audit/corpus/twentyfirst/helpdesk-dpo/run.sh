#!/bin/bash
accelerate launch --config_file accelerate_4gpu.yaml dpo.py --config dpo.yaml
