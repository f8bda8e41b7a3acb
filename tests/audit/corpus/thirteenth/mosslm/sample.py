import argparse

import torch
from safetensors.torch import load_model

from model import MossConfig, MossLM


@torch.no_grad()
def main():
    ap = argparse.ArgumentParser(description="Sample on the GPU from a trained checkpoint.")
    ap.add_argument("--ckpt", required=True)
    ap.add_argument("--cuda-tokens", type=int, nargs="+", required=True)
    ap.add_argument("--new", type=int, default=200)
    args = ap.parse_args()

    model = MossLM(MossConfig()).eval()
    load_model(model, args.ckpt)
    ids = torch.tensor([args.cuda_tokens])
    for _ in range(args.new):
        T = ids.shape[1]
        pos = torch.arange(T, device=ids.device)[None]
        mask = torch.ones(1, 1, T, T, dtype=torch.bool, device=ids.device).tril()
        logits = model(ids, pos, mask)[:, -1]
        ids = torch.cat([ids, torch.multinomial(logits.softmax(-1), 1)], dim=1)
    print(ids[0].tolist())


if __name__ == "__main__":
    main()
