#!/bin/bash
# Started from Windows:  wsl.exe -d Ubuntu-24.04 -- bash /mnt/c/Users/service/faq/start.sh
cd /mnt/c/Users/service/faq || exit 1
source ~/venvs/faq/bin/activate
export LD_LIBRARY_PATH=/usr/lib/wsl/lib
python train_faq.py --epochs 3 "$@"
