"""How often attention in FP8 finds a key that stands out by little, beside attention in bfloat16.

    python needle.py [--device cuda] [--keys 4096 16384 65536 131072] [--values centred ...] [--json]

Each query has one key, its needle, whose score is so little above the others' that attention in float64
finds some nine needles of ten. A value is one of 64 codewords and a part of its own; the needle is found
where its codeword is the one that O resembles most. To biased values a vector of ones is added: what
weights are rounded by must then cancel. Repeated values have no part of their own: what one is rounded by,
all of its codeword are, so that it does not average out over keys. A table has the share of needles that
are found, for each option of the quantisation.
"""

import argparse
import json
import math

import fp8_sdpa
import torch
from torch import Tensor

CODEWORDS = 64
VALUES = {  # the bias, and the deviation of a value's own part
    "centred": (0.0, 1.0),
    "biased": (1.0, 1.0),
    "centred, repeated": (0.0, 0.0),
    "biased, repeated": (1.0, 0.0),
}
OPTIONS = {
    "plain": {"rotate": False, "smooth": False},
    "both": {"rotate": True, "smooth": True},
    "both, a scale a head": {"rotate": True, "smooth": True, "granularity": "head"},
    "int8": {"rotate": True, "smooth": True, "precision": "int8"},
}


def needle_score(keys: int, head_dim: int, own: float) -> float:
    """The scaled score of a needle. With scores of a standard normal distribution a weight's share of all
    is e^s / (n e^0.5). O's product with a codeword is head_dim times the codeword's share of the weights,
    which deviates by sqrt(e / n / CODEWORDS), and what the rest is like it, sqrt(e / n * (1 + own^2) *
    head_dim). Of 64 such products the largest is 2.4 deviations above: with 4.5 some nine needles of ten
    are found."""
    share = 4.5 * math.sqrt(math.e / keys * ((1 + own**2) / head_dim + 1 / CODEWORDS))
    return math.log(share * keys * math.sqrt(math.e))


def haystack(heads: int, rows: int, keys: int, head_dim: int, values: str, seed: int, device: str):
    """Q (1, heads, rows, head_dim), K and V (1, heads, keys, head_dim) in bfloat16; the codewords
    (CODEWORDS, head_dim); and which of them each query's needle has, (heads, rows)."""
    bias, own = VALUES[values]
    random = torch.Generator().manual_seed(seed)
    q, k = (torch.randn(heads, n, head_dim, generator=random).bfloat16().float() for n in (rows, keys))
    codewords = torch.randn(CODEWORDS, head_dim, generator=random)
    codewords -= codewords.mean(0)
    words = torch.randint(CODEWORDS, (heads, keys), generator=random)
    places = torch.stack([torch.randperm(keys, generator=random)[:rows] for _ in range(heads)])
    places = places.unsqueeze(-1).expand(-1, -1, head_dim)
    needles = k.gather(1, places)
    missing = needle_score(keys, head_dim, own) * math.sqrt(head_dim) - (q * needles).sum(-1, keepdim=True)
    k.scatter_(1, places, needles + missing * q / q.square().sum(-1, keepdim=True))
    v = codewords[words] + bias + own * torch.randn(heads, keys, head_dim, generator=random)
    tensors = (x.bfloat16().unsqueeze(0).to(device) for x in (q, k, v))
    return *tensors, codewords.to(device), words.gather(1, places[..., 0]).to(device)


def found(o: Tensor, codewords: Tensor, words: Tensor, values: str) -> float:
    """The share of needles that O (1, heads, rows, head_dim) has found."""
    return (((o[0].float() - VALUES[values][0]) @ codewords.T).argmax(-1) == words).float().mean().item()


def rates(heads: int, rows: int, keys: int, head_dim: int, values: str, seed: int, device: str) -> dict:
    q, k, v, *hidden = haystack(heads, rows, keys, head_dim, values, seed, device)
    row = {"keys": keys, "head_dim": head_dim, "values": values, "needles": heads * rows}
    bf16 = torch.nn.functional.scaled_dot_product_attention(q, k, v)
    row["bf16"] = found(bf16, *hidden, values)
    for name, options in OPTIONS.items():
        row[name] = found(fp8_sdpa.attention(q, k, v, **options), *hidden, values)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--keys", type=int, nargs="+", default=[4096, 16384, 65536, 131072])
    parser.add_argument("--values", choices=VALUES, nargs="+", default=list(VALUES))
    parser.add_argument("--rows", type=int, default=1024)
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--head-dim", type=int, default=128)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="print the rows as JSON, not as a table")
    options = parser.parse_args()
    rows = [
        rates(options.heads, options.rows, keys, options.head_dim, values, options.seed, options.device)
        for keys in options.keys
        for values in options.values
    ]
    if options.json:
        print(json.dumps(rows, indent=1))
        return
    names = ["bf16", *OPTIONS]
    print("| keys | values | " + " | ".join(names) + " |")
    print("|---" * (len(names) + 2) + "|")
    for row in rows:
        shares = " | ".join(f"{row[name]:.4f}" for name in names)
        print(f"| {row['keys']} | {row['values']} | {shares} |")


if __name__ == "__main__":
    main()
