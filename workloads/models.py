"""Language models by their shape, with the parameters and floating-point operations that follow from it.

A multiply-add counts as two operations. Only matrix products are counted, as Narayanan et al. do (Efficient large-scale
language model training on GPU clusters using Megatron-LM, SC'21): of a dense GPT layer 24 b s h^2 + 4 b s^2 h forward.
The backward pass costs twice the forward pass.
"""

from __future__ import annotations

from dataclasses import dataclass

from topologies.near import did_you_mean
from workloads.errors import ModelError

GPU_PEAK_TFLOPS: dict[str, float] = {
    "dgx-a100": 312.0,
    "dgx-h100": 989.4,
    "gh200-nvl256": 989.4,
    "gb200-nvl72": 2500.0,
}
"""Dense BF16 peak of one GPU by hardware preset, from the vendor's data sheets."""


@dataclass(frozen=True)
class Model:
    """A decoder-only transformer.

    ``kv_heads`` are the heads of keys and values (grouped-query attention), ``ffn`` the inner size of a dense layer's
    feed-forward part. ``gated``: three matrices of that size in place of two. ``tied``: input and output embedding are
    one matrix. ``positions``: the model learns a vector for each of that many positions. ``biases``: linear layers and
    norms have biases, as GPT's do. A model with ``experts`` has ``expert_ffn`` and sends every token to ``top_k`` of
    them and to ``shared_experts``; its first ``dense_layers`` layers are dense. ``attention_params`` and
    ``attention_head`` (size of a head) are given where attention is none of the usual kind. Raises ModelError.
    """

    name: str
    layers: int
    hidden: int
    heads: int
    sequence: int
    vocabulary: int
    ffn: int
    kv_heads: int
    gated: bool = False
    tied: bool = False
    biases: bool = False
    positions: int = 0
    experts: int = 0
    top_k: int = 0
    expert_ffn: int = 0
    shared_experts: int = 0
    dense_layers: int = 0
    attention_params: int = 0
    attention_head: int = 0

    def __post_init__(self) -> None:
        for key in ("layers", "hidden", "heads", "sequence", "vocabulary", "ffn", "kv_heads"):
            if getattr(self, key) < 1:
                raise ModelError(f"model '{self.name}': {key} is {getattr(self, key)}; it must be at least 1")
        if self.hidden % self.heads and not self.attention_head:
            raise ModelError(
                f"model '{self.name}': hidden {self.hidden} is not divisible by {self.heads} heads; change either"
            )
        if self.heads % self.kv_heads:
            raise ModelError(
                f"model '{self.name}': {self.heads} heads cannot share {self.kv_heads} key-value heads evenly; "
                "kv_heads must divide heads"
            )
        if self.experts and not (1 <= self.top_k <= self.experts and self.expert_ffn >= 1):
            raise ModelError(
                f"model '{self.name}': {self.experts} experts with top_k {self.top_k} and expert_ffn "
                f"{self.expert_ffn}; top_k must be 1 to {self.experts}, expert_ffn at least 1"
            )
        if not 0 <= self.dense_layers <= self.layers:
            raise ModelError(
                f"model '{self.name}': {self.dense_layers} of its {self.layers} layers are dense; "
                "dense_layers must be 0 to layers"
            )

    @property
    def head_size(self) -> int:
        """Elements of one attention head."""
        return self.attention_head or self.hidden // self.heads

    def has_experts(self, layer: int) -> bool:
        """Whether that layer, counted from 0, is one of experts."""
        return bool(self.experts) and layer >= self.dense_layers

    @property
    def attention_matrices(self) -> int:
        """Elements of the matrices of one layer's attention."""
        if self.attention_params:
            return self.attention_params
        return self.hidden * self.head_size * (2 * self.heads + 2 * self.kv_heads)

    def _feed_forward(self, inner: int) -> int:
        return (3 if self.gated else 2) * self.hidden * inner

    @property
    def expert_matrices(self) -> int:
        """Elements of the matrices of one expert."""
        return self._feed_forward(self.expert_ffn)

    def dense_params(self, layer: int) -> int:
        """Parameters of a layer without its routed experts."""
        h = self.hidden
        if self.has_experts(layer):
            inner = h * self.experts + self.shared_experts * self.expert_matrices
        else:
            inner = self._feed_forward(self.ffn)
        small = 2 * h
        if self.biases:
            # Biases of norms, of queries, keys and values, of the output, and of the feed-forward part.
            small += 2 * h + self.head_size * (self.heads + 2 * self.kv_heads) + h + self.ffn + h
        return self.attention_matrices + inner + small

    def expert_params(self, layer: int) -> int:
        """Parameters of all routed experts of a layer; 0 for a dense one."""
        return self.experts * self.expert_matrices if self.has_experts(layer) else 0

    @property
    def embedding_params(self) -> int:
        """Parameters of one embedding of the vocabulary."""
        return self.vocabulary * self.hidden

    @property
    def params(self) -> int:
        """All parameters."""
        layers = sum(self.dense_params(layer) + self.expert_params(layer) for layer in range(self.layers))
        ends = self.embedding_params * (1 if self.tied else 2) + self.positions * self.hidden
        return layers + ends + self.hidden * (2 if self.biases else 1)

    def attention_flops(self, tokens: int) -> float:
        """Forward operations of one layer's attention for ``tokens`` tokens in sequences of full length."""
        scores = 4 * tokens * self.sequence * self.head_size * self.heads
        return 2.0 * tokens * self.attention_matrices + scores

    def dense_flops(self, layer: int, tokens: int) -> float:
        """Forward operations of a layer's feed-forward part that every token passes: dense, router, shared experts."""
        if self.has_experts(layer):
            inner = self.hidden * self.experts + self.shared_experts * self.expert_matrices
        else:
            inner = self._feed_forward(self.ffn)
        return 2.0 * tokens * inner

    def expert_flops(self, tokens: int) -> float:
        """Forward operations of the routed experts for ``tokens`` tokens, each of which goes to ``top_k`` of them."""
        return 2.0 * tokens * self.top_k * self.expert_matrices

    def head_flops(self, tokens: int) -> float:
        """Forward operations of the output embedding."""
        return 2.0 * tokens * self.embedding_params

    def forward_flops(self, tokens: int) -> float:
        """Forward operations of the whole model."""
        total = self.head_flops(tokens)
        for layer in range(self.layers):
            total += self.attention_flops(tokens) + self.dense_flops(layer, tokens)
            if self.has_experts(layer):
                total += self.expert_flops(tokens)
        return total


def gpt(name: str, layers: int, hidden: int, heads: int, vocabulary: int = 51_200) -> Model:
    """A model of the GPT-3 family: sequence 2048, feed-forward part of 4 times the hidden size."""
    return Model(
        name, layers, hidden, heads, sequence=2048, vocabulary=vocabulary, ffn=4 * hidden, kv_heads=heads, tied=True,
        biases=True, positions=2048,
    )  # fmt: skip


def _llama(
    name: str, layers: int, hidden: int, heads: int, ffn: int, kv_heads: int, sequence: int, vocabulary: int
) -> Model:
    return Model(name, layers, hidden, heads, sequence, vocabulary, ffn, kv_heads, gated=True)


MODELS: dict[str, Model] = {
    model.name: model
    for model in (
        # Brown et al., Language models are few-shot learners, table 2.1.
        gpt("gpt3-125m", 12, 768, 12),
        gpt("gpt3-1.3b", 24, 2048, 16),
        gpt("gpt3-6.7b", 32, 4096, 32),
        gpt("gpt3-13b", 40, 5120, 40),
        gpt("gpt3-175b", 96, 12_288, 96),
        # Narayanan et al., SC'21, table 1; 22b: Korthikanti et al., Reducing activation recomputation, table 3.
        gpt("gpt3-22b", 48, 6144, 64),
        gpt("gpt3-39b", 48, 8192, 64),
        gpt("gpt3-76b", 60, 10_240, 80),
        gpt("gpt3-145b", 80, 12_288, 96),
        gpt("gpt3-310b", 96, 16_384, 128),
        gpt("gpt3-530b", 105, 20_480, 128),
        gpt("gpt3-1t", 128, 25_600, 160),
        # The models' cards and papers.
        _llama("llama2-7b", 32, 4096, 32, 11_008, 32, 4096, 32_000),
        _llama("llama2-13b", 40, 5120, 40, 13_824, 40, 4096, 32_000),
        _llama("llama2-70b", 80, 8192, 64, 28_672, 8, 4096, 32_000),
        _llama("llama3-8b", 32, 4096, 32, 14_336, 8, 8192, 128_256),
        _llama("llama3-70b", 80, 8192, 64, 28_672, 8, 8192, 128_256),
        _llama("llama3-405b", 126, 16_384, 128, 53_248, 8, 8192, 128_256),
        Model("mixtral-8x7b", 32, 4096, 32, 4096, 32_000, 14_336, 8, gated=True, experts=8, top_k=2,
              expert_ffn=14_336),
        Model("mixtral-8x22b", 56, 6144, 48, 4096, 32_768, 16_384, 8, gated=True, experts=8, top_k=2,
              expert_ffn=16_384),
        # Multi-head latent attention: 1536 and 512 latent elements, heads of 128 + 64 and 128.
        Model("deepseek-v3", 61, 7168, 128, 4096, 129_280, 18_432, 128, gated=True, experts=256, top_k=8,
              expert_ffn=2048, shared_experts=1, dense_layers=3, attention_head=160,
              attention_params=7168 * 1536 + 1536 * 128 * 192 + 7168 * 576 + 512 * 128 * 256 + 128 * 128 * 7168),
    )
}  # fmt: skip


def find_model(name: str) -> Model:
    """The preset of that name; raises ModelError with the nearest name and the list."""
    key = name.strip().lower().replace("_", "-").replace(" ", "-")
    if key not in MODELS:
        hint = did_you_mean(key, MODELS)
        raise ModelError(f"unknown model '{name}': {hint}The models are {', '.join(MODELS)}")
    return MODELS[key]
