import click
import lightning as L
from lightning.pytorch.callbacks import LearningRateMonitor, ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from lightning.pytorch.strategies import DDPStrategy

from peptide.data import Peptides
from peptide.model import PeptideLM


@click.command()
@click.option("--folder", required=True)
@click.option("--devices", default=2)
@click.option("--batch-size", default=1024, help="per GPU")
@click.option("--workers", default=2, show_default=True, help="slices of a mapped tensor: two are plenty")
@click.option("--steps", default=60_000)
@click.option("--seed", default=20)
@click.option("--out", default="out")
@click.option("--resume/--fresh", default=False)
def main(folder, devices, batch_size, workers, steps, seed, out, resume):
    L.seed_everything(seed, workers=True)
    # find_unused_parameters is needed: LayerDrop leaves layers without gradient,
    # other ones in each step (so static_graph is out as well)
    strategy = DDPStrategy(find_unused_parameters=True) if devices > 1 else "auto"
    trainer = L.Trainer(
        accelerator="gpu",
        devices=devices,
        strategy=strategy,
        precision="bf16-mixed",
        max_steps=steps,
        val_check_interval=2000,
        check_val_every_n_epoch=None,
        log_every_n_steps=50,
        gradient_clip_val=1.0,
        logger=CSVLogger(out),
        callbacks=[
            ModelCheckpoint(out, filename="{step}", save_last=True, monitor="val/mlm", save_top_k=2),
            LearningRateMonitor(),
        ],
    )
    trainer.fit(PeptideLM(steps=steps), Peptides(folder, batch_size, workers),
                ckpt_path="last" if resume else None)


if __name__ == "__main__":
    main()
