"""Training a Bernoulli linear VAE with 2 latents on binarised MNIST digits by masked prediction, beside the ELBO.

The last experiment of Moreno-Muñoz, Recasens and Hauberg (2023), with every prediction conditioned on the visible part
and with a quadrature fine enough to be believed. Three trainings of one decoder (784 logits W z + b, z ~ N(0, I_2)):
`masked` maximises the masked score of four masks of stratified uniform sizes a step; `elbo` the evidence lower bound
with a linear Gaussian encoder, one reparameterised draw; `evidence` log p(x) itself by quadrature, the yardstick.

    python experiments/binary_digits/run.py --rows 1000 --seconds 40
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, softplus

import mpt_bayes as mb
from mpt_bayes.numerics.random import Stream

BATCH, LEARNING_RATE, N_MASKS = 50, 0.02, 4


def digits(rows: int) -> Tensor:
    """(rows, 784) of 0 and 1: grey level above 127, the rows spread over the ten digits."""
    x = (mb.datasets.load("mnist-5k").x > 127).double()
    return x[torch.randperm(len(x), generator=Stream(0).child("rows").generator())[:rows]]


def fresh_decoder(x: Tensor) -> torch.nn.Linear:
    """Small weights, biases at the pixels' log odds."""
    decoder = torch.nn.Linear(2, x.shape[1])
    generator = Stream(0).child("decoder").generator()
    decoder.weight.data = 0.1 * torch.randn(decoder.weight.shape, generator=generator)
    frequency = (x.sum(0) + 0.5) / (len(x) + 1)
    decoder.bias.data = frequency.logit().float()
    return decoder


def model_of(decoder: torch.nn.Linear, **options: object) -> mb.models.LatentQuadrature:
    """The library's model around a decoder; training uses a coarse grid in float32."""
    return mb.models.LatentQuadrature.bernoulli(decoder, 2, **options)


def train(objective: str, x: Tensor, options: argparse.Namespace) -> list[dict[str, float]]:
    """Adam for a number of processor seconds; log p per datum at each checkpoint (whose time is not counted)."""
    decoder = fresh_decoder(x)
    grid = model_of(decoder, n_nodes=40, half_width=4.5, dtype=torch.float32)
    encoder = torch.nn.Linear(x.shape[1], 4)
    encoder.weight.data = 0.01 * torch.randn(encoder.weight.shape, generator=Stream(0).child("encoder").generator())
    encoder.bias.data.zero_()
    optimiser = torch.optim.Adam([*decoder.parameters(), *encoder.parameters()], lr=LEARNING_RATE)
    data, history, spent, step = x.float(), [], 0.0, 0
    while len(history) < options.checkpoints:
        start = time.process_time()
        stream = Stream(0).child("step", step)
        chosen = torch.randint(len(x), (BATCH,), generator=stream.child("rows").generator())
        batch = data[chosen]
        if objective == "masked":
            masks = mb.masks.StratifiedSizes(N_MASKS, replicates=1).draw(x.shape[1], stream.child("masks"))
            scores = grid.masked_log_prob(batch, masks.hidden).sum(2) / masks.hidden.sum(1)
            value = (scores @ masks.sampling.log_weight.exp().float()).mean()
        elif objective == "evidence":
            value = grid.log_marginal_likelihood(batch).mean()
        else:
            mean, raw = encoder(batch).chunk(2, 1)
            scale = softplus(raw) + 1e-4
            noise = torch.randn(mean.shape, generator=stream.child("noise").generator())
            fit = binary_cross_entropy_with_logits(decoder(mean + scale * noise), batch, reduction="none").sum(1)
            divergence = 0.5 * (mean.square() + scale.square() - 1 - 2 * scale.log()).sum(1)
            value = -(fit + divergence).mean()
        optimiser.zero_grad()
        (-value).backward()
        optimiser.step()
        step += 1
        spent += time.process_time() - start
        if spent >= options.seconds * (len(history) + 1) / options.checkpoints:
            history.append(evaluate(decoder, x[: options.evaluate], spent, step, options.check))
    return history


@torch.no_grad()
def evaluate(decoder: torch.nn.Linear, x: Tensor, seconds: float, step: int, rows_checked: int) -> dict[str, float]:
    """Exact log p per datum in float64, on the default grid, with the error of that grid on some rows."""
    double = torch.nn.Linear(2, x.shape[1]).double()
    double.load_state_dict(decoder.state_dict())
    model = model_of(double)
    error = model.quadrature_error(x[:rows_checked])
    value = float(model.log_marginal_likelihood(x).mean())
    return {"seconds": seconds, "step": step, "log_p": value, "error_mean": error.mean, "error_max": error.largest}


def main() -> None:
    """Run, print and keep the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=40, help="processor time of each training")
    parser.add_argument("--checkpoints", type=int, default=2)
    parser.add_argument("--check", type=int, default=100, help="rows on which the error of the grid is measured")
    parser.add_argument("--objectives", nargs="+", default=["masked", "elbo", "evidence"])
    parser.add_argument("--evaluate", type=int, default=1000, help="rows on which log p is averaged")
    parser.add_argument("--out", type=Path, default=Path("runs/binary_digits"))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    x = digits(arguments.rows)
    arguments.out.mkdir(parents=True, exist_ok=True)
    results = {}
    for objective in arguments.objectives:
        results[objective] = train(objective, x, arguments)
        for point in results[objective]:
            print(
                f"{objective:9} {point['seconds']:6.1f} s {point['step']:5d} steps log p {point['log_p']:.3f} a digit"
                f"  (grid error mean {point['error_mean']:+.1e}, largest {point['error_max']:.1e})",
                flush=True,
            )
    (arguments.out / f"{arguments.rows}.json").write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
