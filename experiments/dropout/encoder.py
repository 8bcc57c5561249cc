"""The encoder that the embedding and DropToken experiments start from.

python -m experiments.dropout.encoder             pre-trains it into runs/dropout_encoder (minutes on 2 CPU cores)
"""

from __future__ import annotations

import tomllib
from pathlib import Path

from mpt_bayes.lm import MaskedLM
from mpt_bayes.lm.pretraining import PretrainConfig, load_run, pretrain

CONFIG = Path(__file__).parent / "encoder.toml"
FOLDER = Path("runs/dropout_encoder")


def encoder_config() -> PretrainConfig:
    """How it is pre-trained."""
    return PretrainConfig.from_dict(tomllib.loads(CONFIG.read_text()))


def pretrained_encoder(folder: Path = FOLDER) -> MaskedLM:
    """The masked language model of a finished pre-training run, with its tokenizer: any folder `pretrain` leaves."""
    return load_run(folder).model


def main() -> None:
    run = pretrain(encoder_config(), FOLDER, resume=FOLDER.exists())
    print(run.result)


if __name__ == "__main__":
    main()
