"""What FP8 attention costs a model, an error for each layer and option and the model's own measure; and
what it gives, the time of a forward pass.

    python model_quality.py --model FOLDER --text FILE [--device cuda] [--speed 4096 16384 32768]

FOLDER has any model that Hugging Face transformers builds from disk; without one, a model of random weights
is made. The text is cut into pieces of --tokens tokens. For every layer the table has the relative L2 error
of the attention's output on the activations that reach it, against float64 attention, for each option of the
quantisation; then the model as a whole, all layers in FP8, against all in the model's dtype: perplexity
where it has a head for the next token, the cosine of mean embeddings where it has not.

--speed times a forward pass over so many random tokens, without the head, in bfloat16: with PyTorch's
scaled_dot_product_attention, and with fp8_sdpa by its hook for transformers.
"""

import argparse
import math
import pathlib
import statistics
import time
from typing import NamedTuple

import fp8_sdpa
import torch
import transformers
from torch import Tensor

OPTIONS = {
    "plain": {"rotate": False, "smooth": False},
    "rotate": {"rotate": True, "smooth": False},
    "smooth": {"rotate": False, "smooth": True},
    "both": {"rotate": True, "smooth": True},
    "int8": {"rotate": True, "smooth": True, "precision": "int8"},
}


def exact(q: Tensor, k: Tensor, v: Tensor, causal: bool, scale: float) -> Tensor:
    """Attention in float64; causal is aligned bottom-right."""
    q, k, v = (x.double() for x in (q, k, v))
    k, v = (x.repeat_interleave(q.shape[1] // k.shape[1], dim=1) for x in (k, v))
    scores = q @ k.transpose(-1, -2) * scale
    if causal:
        rows, keys = scores.shape[-2:]
        seen = torch.ones(rows, keys, dtype=torch.bool, device=q.device).tril(keys - rows)
        scores = scores.masked_fill(~seen, -torch.inf)
    return scores.softmax(-1) @ v


class Probe:
    """An attention implementation for transformers that measures itself."""

    def __init__(self) -> None:
        self.errors: dict[torch.nn.Module, dict[str, list[float]]] = {}
        self.option: str | None = None
        """In which the model runs; None for its own dtype, with every option measured."""

    def __call__(
        self,
        module: torch.nn.Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: Tensor | None,
        scaling: float | None = None,
        is_causal: bool | None = None,
        **_options: object,
    ) -> tuple[Tensor, None]:
        if attention_mask is not None:
            raise NotImplementedError("attention_mask is given; only causal and none are served")
        causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
        scale = query.shape[-1] ** -0.5 if scaling is None else scaling
        if self.option is not None:
            out = fp8_sdpa.attention(query, key, value, causal=causal, scale=scale, **OPTIONS[self.option])
            return out.to(query.dtype).transpose(1, 2), None
        want = exact(query, key, value, causal, scale)
        layer = self.errors.setdefault(module, {})
        for name, options in OPTIONS.items():
            got = fp8_sdpa.attention(query, key, value, causal=causal, scale=scale, **options)
            layer.setdefault(name, []).append(((got - want).norm() / want.norm()).item())
        return want.to(query.dtype).transpose(1, 2), None


def made_model(layers_of_8b: int | None = None) -> tuple[transformers.PreTrainedModel, Tensor]:
    """Random weights, two small layers or so many of Llama 3 8B's shape, and tokens for them."""
    torch.manual_seed(0)
    small = {
        "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "head_dim": 64,
    }  # fmt: skip
    shape = small if layers_of_8b is None else {
        "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": layers_of_8b,
        "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128,
    }  # fmt: skip
    config = transformers.LlamaConfig(vocab_size=256, **shape)
    return transformers.LlamaForCausalLM(config), torch.randint(0, 256, (400,))


def measure_of(model: transformers.PreTrainedModel, pieces: list[Tensor]) -> Tensor:
    """Perplexity, or the mean embedding of each piece."""
    outputs = [model(piece[None]) for piece in pieces]
    if not hasattr(outputs[0], "logits"):
        return torch.cat([output.last_hidden_state.float().mean(1) for output in outputs])
    losses = [
        torch.nn.functional.cross_entropy(output.logits[0, :-1].float(), piece[1:])
        for output, piece in zip(outputs, pieces, strict=True)
    ]
    return torch.stack(losses).mean().exp()


class Pass(NamedTuple):
    """A forward pass of so many tokens, timed."""

    tokens: int
    sdpa_ms: float
    fp8_ms: float


@torch.no_grad()
def speed_of(model: transformers.PreTrainedModel, lengths: list[int]) -> list[Pass]:
    """Medians of passes in turns, of the model without its head, which becomes one of bfloat16."""
    fp8_sdpa.hooks.register_transformers()
    model = model.base_model.to(torch.bfloat16)
    device = next(model.parameters()).device

    def milliseconds(implementation: str, tokens: Tensor) -> float:
        model.set_attn_implementation(implementation)
        start = time.perf_counter()
        model(tokens, use_cache=False)
        if device.type == "cuda":
            torch.cuda.synchronize()
        return 1e3 * (time.perf_counter() - start)

    passes = []
    for length in lengths:
        tokens = torch.randint(0, model.config.vocab_size, (1, length), device=device)
        times = [(milliseconds("sdpa", tokens), milliseconds("fp8_sdpa", tokens)) for _ in range(7)]
        passes.append(Pass(length, *(statistics.median(of[2:]) for of in zip(*times, strict=True))))
    return passes


@torch.no_grad()
def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", help="a folder that transformers loads; default: a made one")
    parser.add_argument("--text", type=pathlib.Path, help="what the model reads; needed with --model")
    parser.add_argument("--tokens", type=int, default=256, help="of a piece")
    parser.add_argument("--pieces", type=int, default=4, help="at most so many")
    parser.add_argument("--device", default="cpu")
    parser.add_argument(
        "--speed", type=int, nargs="+", default=[], metavar="TOKENS", help="times such passes"
    )
    options = parser.parse_args(arguments)
    if options.model is None:
        model, tokens = made_model()
    else:
        if options.text is None:
            parser.error("--model needs --text FILE")
        config = transformers.AutoConfig.from_pretrained(options.model)
        causal = any("CausalLM" in name for name in config.architectures or [])
        kind = transformers.AutoModelForCausalLM if causal else transformers.AutoModel
        model = kind.from_pretrained(options.model)
        tokenizer = transformers.AutoTokenizer.from_pretrained(options.model)
        tokens = tokenizer(options.text.read_text(), return_tensors="pt", verbose=False).input_ids[0]
    pieces = [p.to(options.device) for p in tokens.split(options.tokens)[: options.pieces] if len(p) > 1]
    if not pieces:
        parser.error("the text has no two tokens")

    probe = Probe()
    transformers.AttentionInterface.register("fp8_sdpa_probe", probe)
    transformers.AttentionMaskInterface.register("fp8_sdpa_probe", transformers.masking_utils.sdpa_mask)
    model = model.eval().to(options.device)
    model.set_attn_implementation("fp8_sdpa_probe")
    want = measure_of(model, pieces)

    print("relative L2 error of the attention's output\nlayer" + "".join(f"{name:>10}" for name in OPTIONS))
    for layer, errors in enumerate(probe.errors.values()):
        means = (math.fsum(errors[name]) / len(errors[name]) for name in OPTIONS)
        print(f"{layer:5}" + "".join(f"{mean:10.4f}" for mean in means))
    if want.dim() == 0:
        print(f"perplexity without FP8 {want:.4f}")
    for name in OPTIONS:
        probe.option = name
        got = measure_of(model, pieces)
        if want.dim() == 0:
            print(f"perplexity, {name}: {got:.4f} ({(got / want - 1) * 100:+.3f} %)")
        else:
            cosine = torch.nn.functional.cosine_similarity(got, want)
            print(f"cosine of embeddings, {name}: least {cosine.min():.6f}, mean {cosine.mean():.6f}")
    for tokens, sdpa_ms, fp8_ms in speed_of(model, options.speed):
        print(
            f"{tokens} tokens: sdpa {sdpa_ms:.2f} ms, fp8_sdpa {fp8_ms:.2f} ms, {sdpa_ms / fp8_ms:.2f} times"
        )


if __name__ == "__main__":
    main()
