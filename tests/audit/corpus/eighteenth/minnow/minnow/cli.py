from pathlib import Path

import typer

app = typer.Typer(add_completion=False)


@app.command()
def train(data: Path, out: Path, epochs: int = 3, seed: int = 11, resume: bool = False):
    from minnow.sft import run

    run(str(data), str(out), epochs=epochs, seed=seed, resume=resume)


@app.command()
def score(data: Path, adapter: Path, batch_size: int = 8):
    from minnow.score import mean_loss

    typer.echo(f"loss per answer token: {mean_loss(str(data), str(adapter), batch_size):.4f}")


if __name__ == "__main__":
    app()
