import lightning as L
import torch
import torch.nn as nn
import torch.nn.functional as F

from .data import CLS, EOS, MASK, PAD, SIZE, LEN


class Layer(nn.Module):
    def __init__(self, d, h, keep_maps):
        super().__init__()
        self.h, self.keep_maps = h, keep_maps
        self.n1, self.n2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.o = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.ff = nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d))

    def forward(self, x, mask):
        b, t, d = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, t, 3, self.h, d // self.h).permute(2, 0, 3, 1, 4)
        if self.keep_maps:
            # contact head: it reads the maps of the last layer, so SDPA cannot be used there
            w = (q @ k.transpose(-1, -2)) * (d // self.h) ** -0.5
            w = w.masked_fill(~mask, float("-inf")).softmax(-1)
            y = w @ v
        else:
            w, y = None, F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        x = x + self.o(y.transpose(1, 2).reshape(b, t, d))
        return x + self.ff(self.n2(x)), w


class PeptideLM(L.LightningModule):
    def __init__(self, width=512, layers=12, heads=8, lr=4e-4, warmup=1000, steps=60_000,
                 layer_drop=0.1, contact_weight=0.1):
        super().__init__()
        self.save_hyperparameters()
        self.tok, self.pos = nn.Embedding(SIZE, width, padding_idx=PAD), nn.Embedding(LEN, width)
        self.layers = nn.ModuleList(Layer(width, heads, i == layers - 1) for i in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, SIZE)
        self.contact = nn.Linear(heads, 1)

    def encode(self, ids):
        mask = (ids != PAD)[:, None, None, :]
        x = self.tok(ids) + self.pos.weight
        maps = None
        for i, layer in enumerate(self.layers):
            last = i == len(self.layers) - 1
            # LayerDrop, drawn on the CPU: a skipped layer has no gradient in this step
            if self.training and not last and torch.rand(()) < self.hparams.layer_drop:
                continue
            x, maps = layer(x, mask)
        return self.norm(x), maps

    @staticmethod
    def corrupt(ids):
        special = (ids == PAD) | (ids == CLS) | (ids == EOS)
        pick = (torch.rand(ids.shape, device=ids.device) < 0.15) & ~special
        r = torch.rand(ids.shape, device=ids.device)
        noisy = torch.where(pick & (r < 0.8), MASK, ids)
        noisy = torch.where(pick & (r > 0.9), torch.randint_like(ids, 5, SIZE), noisy)
        return noisy, torch.where(pick, ids, -100)

    def _loss(self, batch):
        ids = batch[0].long()
        noisy, labels = self.corrupt(ids)
        x, maps = self.encode(noisy)
        mlm = F.cross_entropy(self.head(x).float().flatten(0, 1), labels.flatten(), ignore_index=-100)
        sym = self.contact((maps + maps.transpose(-1, -2)).permute(0, 2, 3, 1)).squeeze(-1)
        sparse = sym.sigmoid().mean()              # few contacts in short peptides
        return mlm, mlm + self.hparams.contact_weight * sparse

    def training_step(self, batch, _):
        mlm, loss = self._loss(batch)
        self.log("train/mlm", mlm.detach())        # no sync: the logger reads it every 50 steps
        return loss

    def validation_step(self, batch, _):
        mlm, _ = self._loss(batch)
        self.log("val/mlm", mlm, sync_dist=True, prog_bar=True)

    def configure_optimizers(self):
        h = self.hparams
        opt = torch.optim.AdamW(self.parameters(), lr=h.lr, betas=(0.9, 0.98), weight_decay=0.01, fused=True)
        f = lambda s: min((s + 1) / h.warmup, max(0.0, (h.steps - s) / (h.steps - h.warmup)))
        return {"optimizer": opt, "lr_scheduler": {"scheduler": torch.optim.lr_scheduler.LambdaLR(opt, f), "interval": "step"}}
