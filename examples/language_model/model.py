"""A small character-level recurrent model: embedding, one gated recurrent layer, readout."""

from __future__ import annotations

import torch
from torch import nn


class CharacterModel(nn.Module):
    """Predicts the next character after each prefix of a text."""

    context = 96
    """Length of the texts it is trained on."""

    def __init__(self, characters: int, width: int = 192, state: int = 256) -> None:
        super().__init__()
        self.embed = nn.Embedding(characters, width)
        self.remember = nn.GRU(width, state, batch_first=True)
        self.read = nn.Linear(state, characters)

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        """(batch, time) indices to (batch, time, characters) logits."""
        return self.read(self.remember(self.embed(text))[0])

    @torch.no_grad()
    def write(self, prompt: list[int], length: int, temperature: float, seed: int) -> list[int]:
        """The prompt and `length` more characters."""
        generator = torch.Generator().manual_seed(seed)
        text, state = list(prompt), None
        unread = torch.tensor([prompt])
        for _ in range(length):
            out, state = self.remember(self.embed(unread), state)
            chances = torch.softmax(self.read(out[0, -1]) / temperature, dim=0)
            text.append(int(torch.multinomial(chances, 1, generator=generator)))
            unread = torch.tensor([text[-1:]])
        return text
