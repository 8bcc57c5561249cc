"""What correcting the embeddings does to masked scores and to effective rank, paired mask by mask.

    python -m experiments.dropout.embedding_effects antibody      writes results/embeddings_antibody.json
    python -m experiments.dropout.embedding_effects docstrings    writes results/embeddings_docstrings.json

On the antibody BERT inside the package antiberty, with its bundled sequences, and on the encoder of `encoder.py`, with
paragraphs of Python's help topics, which it was not trained on. Every variant is scored by `mpt_bayes.lm.score` with
the same masks.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from experiments.dropout.encoder import FOLDER, pretrained_encoder
from mpt_bayes.dropout import Corruption, correct_embeddings
from mpt_bayes.lm import MaskedLM, adapt, antibody, antibody_sequences, score
from mpt_bayes.lm.scoring import Text
from mpt_bayes.representation import effective_rank

RESULTS = Path(__file__).parent / "results"
VARIANTS: dict[str, dict[str, Any]] = {
    "head kept": {"tied_head": "keep"},
    "head follows": {"tied_head": "follow"},
}


def help_paragraphs(model: MaskedLM, count: int) -> list[Text]:
    """The first 40 tokens of `count` paragraphs, spread evenly over Python's help topics."""
    from pydoc_data.topics import topics

    paragraphs = [" ".join(p.split()) for name in sorted(topics) for p in topics[name].split("\n\n")]
    long_enough = [p for p in paragraphs if len(p.split()) >= 40]
    chosen = [long_enough[i * len(long_enough) // count] for i in range(count)]
    return [model.encode(text, row=row).slice(0, 40) for row, text in enumerate(chosen)]


def scores(model: MaskedLM, texts: list[Text], budget: int) -> list[dict[str, Any]]:
    """Total of the original, and the paired difference of each correction; nats per token."""
    original = score(model, texts, budget=budget, seed=0)
    n_tokens = original.perplexity.n_tokens
    rows: list[dict[str, Any]] = [
        {
            "variant": "original",
            "nats_per_token": original.total.value / n_tokens,
            "standard_error": original.total.standard_error / n_tokens,
        }
    ]
    for name, options in VARIANTS.items():
        corrected = score(corrected_model(model, **options), texts, budget=budget, seed=0)
        difference = corrected.minus(original)
        rows.append(
            {
                "variant": name,
                "nats_per_token": corrected.total.value / n_tokens,
                "difference": difference.value / n_tokens,
                "standard_error": difference.standard_error / n_tokens,
                "data_standard_error": difference.data_standard_error / n_tokens,
                "curve_difference": (corrected.rate_curve(10)["score"] - original.rate_curve(10)["score"]).tolist(),
            }
        )
    return rows


def corrected_model(model: MaskedLM, **options: Any) -> MaskedLM:
    """A copy with BERT's correction; special tokens, [MASK] among them, stay as they are."""
    corrected = correct_embeddings(
        model.module, model.mask_token_id, untouched_ids=model.tokenizer.all_special_ids, **options
    )
    return adapt(corrected.model, model.tokenizer, name=f"{model.name}, corrected")


def ranks(model: MaskedLM, texts: list[Text]) -> list[dict[str, Any]]:
    """Effective rank (τ = .9) of the embedding table and of each layer's states on unmasked text, before and after."""
    rows = []
    for name, module in (("original", model), ("corrected", corrected_model(model, tied_head="keep"))):
        matrices = {"table": module.module.get_input_embeddings().weight.detach()}
        matrices |= {f"layer {i}": states for i, states in enumerate(layer_states(module, texts))}
        for place, matrix in matrices.items():
            row: dict[str, Any] = {"variant": name, "place": place, "vectors": len(matrix)}
            row |= {"rank": effective_rank(matrix), "centred_rank": effective_rank(matrix, center=True)}
            rows.append(row)
    return rows


def layer_states(model: MaskedLM, texts: list[Text]) -> list[Tensor]:
    """(n, H) of each layer: states of the scored tokens of all texts, nothing masked."""
    encoder: nn.Module = model.module.base_model
    collected: list[list[Tensor]] = []
    for row, text in enumerate(texts):
        encoded = model.encode(text, row=row) if isinstance(text, str) else text
        with torch.no_grad():
            states = encoder(input_ids=encoded.ids[None], output_hidden_states=True).hidden_states
        collected.append([state[0, encoded.scored] for state in states])
    return [torch.cat(layer) for layer in zip(*collected, strict=True)]


def measure(model: MaskedLM, texts: list[Text], budget: int) -> dict[str, Any]:
    """Scores and ranks of one model, with what was corrected."""
    return {
        "model": model.name,
        "model_digest": model.digest,
        "texts": len(texts),
        "budget": budget,
        "corruption": [Corruption().own_weight, Corruption().mask_weight, Corruption().random_weight],
        "scores": scores(model, texts, budget),
        "ranks": ranks(model, texts),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", choices=["antibody", "docstrings"])
    parser.add_argument("--encoder", type=Path, default=FOLDER)
    parser.add_argument("--budget", type=int, default=24)
    arguments = parser.parse_args()
    if arguments.model == "antibody":
        record = measure(antibody(), list(antibody_sequences().values()), arguments.budget)
    else:
        model = pretrained_encoder(arguments.encoder)
        record = measure(model, help_paragraphs(model, 100), arguments.budget)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"embeddings_{arguments.model}.json").write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
