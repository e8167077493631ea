"""A small character-level transformer: pre-norm blocks, causal attention, tied embeddings."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional


class Block(nn.Module):
    """Attention, then a two-layer perceptron, each added to its input."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_attention = nn.LayerNorm(width)
        self.queries_keys_values = nn.Linear(width, 3 * width, bias=False)
        self.mix = nn.Linear(width, width, bias=False)
        self.norm_perceptron = nn.LayerNorm(width)
        self.perceptron = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(batch, time, width) to the same shape."""
        batch, time, width = x.shape
        qkv = self.queries_keys_values(self.norm_attention(x))
        q, k, v = qkv.view(batch, time, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        attended = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.mix(attended.transpose(1, 2).reshape(batch, time, width))
        return x + self.perceptron(self.norm_perceptron(x))


class CharacterModel(nn.Module):
    """Predicts the next character of each prefix of a text of at most `context` characters."""

    def __init__(
        self, characters: int, context: int = 96, width: int = 128, heads: int = 4, layers: int = 3
    ) -> None:
        super().__init__()
        self.context = context
        self.embed = nn.Embedding(characters, width)
        self.position = nn.Parameter(torch.zeros(context, width))
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        nn.init.normal_(self.embed.weight, std=0.02)
        nn.init.normal_(self.position, std=0.02)

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        """(batch, time) indices to (batch, time, characters) logits."""
        x = self.embed(text) + self.position[: text.shape[1]]
        return self.norm(self.blocks(x)) @ self.embed.weight.T

    @torch.no_grad()
    def write(self, prompt: list[int], length: int, temperature: float, seed: int) -> list[int]:
        """Continue the prompt by `length` characters."""
        generator = torch.Generator().manual_seed(seed)
        text = list(prompt)
        for _ in range(length):
            window = torch.tensor(text[-self.context :])[None]
            chances = torch.softmax(self(window)[0, -1] / temperature, dim=0)
            text.append(int(torch.multinomial(chances, 1, generator=generator)))
        return text
