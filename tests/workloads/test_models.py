import dataclasses

import pytest

from workloads.errors import ModelError
from workloads.models import MODELS, find_model

# Parameters in billions, as the models' papers and cards state them.
STATED = {
    "gpt3-1.3b": 1.3, "gpt3-6.7b": 6.7, "gpt3-13b": 13.0, "gpt3-175b": 175.0, "gpt3-22b": 22.0, "gpt3-39b": 39.1,
    "gpt3-76b": 76.1, "gpt3-145b": 145.6, "gpt3-310b": 310.1, "gpt3-530b": 529.6, "gpt3-1t": 1008.0,
    "llama2-7b": 6.74, "llama2-13b": 13.02, "llama2-70b": 68.98, "llama3-8b": 8.03, "llama3-70b": 70.55,
    "llama3-405b": 405.85, "mixtral-8x7b": 46.7, "mixtral-8x22b": 140.6, "deepseek-v3": 671.0,
}  # fmt: skip


@pytest.mark.parametrize("name", STATED)
def test_parameters_are_those_that_are_stated(name: str) -> None:
    assert find_model(name).params / 1e9 == pytest.approx(STATED[name], rel=0.02)


@pytest.mark.parametrize("name", [name for name in MODELS if name.startswith("gpt3")])
def test_operations_are_those_of_the_formula(name: str) -> None:
    """Narayanan et al., SC'21, without recomputing: 72 B s l h^2 (1 + s/6h + V/12lh), forward and backward."""
    model = find_model(name)
    layers, hidden, sequence, batch = model.layers, model.hidden, model.sequence, 3
    expected = 72 * batch * sequence * layers * hidden**2
    expected *= 1 + sequence / (6 * hidden) + model.vocabulary / (12 * layers * hidden)
    assert 3 * model.forward_flops(batch * sequence) == pytest.approx(expected, rel=1e-12)


def test_a_token_costs_six_operations_per_active_parameter() -> None:
    """The usual rule of thumb, attention scores aside; of Mixtral 12.9 of 46.7 billion parameters are active."""
    for name, active in (("llama2-70b", 69e9), ("mixtral-8x7b", 12.9e9), ("deepseek-v3", 37e9)):
        model = find_model(name)
        scores = 4 * model.sequence * model.head_size * model.heads * model.layers
        assert 3 * (model.forward_flops(1) - scores) == pytest.approx(6 * active, rel=0.06)


def test_unknown_and_impossible_models_are_refused() -> None:
    with pytest.raises(ModelError, match="unknown model 'Llama3 71B': did you mean 'llama3-70b'"):
        find_model("Llama3 71B")
    good = find_model("mixtral-8x7b")
    for change, words in (
        ({"layers": 0}, "layers is 0"),
        ({"heads": 33, "kv_heads": 33}, "hidden 4096 is not divisible by 33 heads"),
        ({"kv_heads": 5}, "32 heads cannot share 5"),
        ({"top_k": 9}, "8 experts with top_k 9"),
        ({"dense_layers": 33}, "33 of its 32 layers are dense"),
    ):
        with pytest.raises(ModelError, match=words):
            dataclasses.replace(good, **change)  # type: ignore[arg-type]
