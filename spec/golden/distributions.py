"""Writes distributions.json: the results of PyTorch's distributions for a few values.

    python3 spec/golden/distributions.py > spec/golden/distributions.json

A case is a class, its parameters, values and, for each method or field of PyTorch, its result as a
flat list in float64; `slopes` are the gradients of sum(log_prob) for the parameters. Positions
count from 1.
"""

import json

import torch
import torch.distributions as D

torch.set_default_dtype(torch.float64)

LOC = [[-0.5, 1.25], [0.0, 3.0]]
SCALE = [0.5, 2.0]
REAL = [[-1.5, 0.25], [2.0, 4.5]]
POSITIVE = [[0.25, 1.5], [3.0, 0.75]]
SHARES = [[0.125, 0.5], [0.75, 0.9375]]
WEIGHTS = [[0.25, 0.5, 0.125, 0.125], [1.0, 2.0, 4.0, 1.0]]
LOGITS = [[0.5, -1.0, 0.25, 2.0], [0.0, 3.0, -0.5, 1.0]]
COVARIANCE = [[2.0, 0.5], [0.5, 1.25]]
TRIANGLE = [[1.5, 0.0], [-0.5, 0.75]]
HOT = [[0, 0, 1, 0], [1, 0, 0, 0]]

CASES = [
    ("Normal", {"loc": LOC, "scale": SCALE}, REAL),
    ("LogNormal", {"loc": LOC, "scale": SCALE}, POSITIVE),
    ("HalfNormal", {"scale": SCALE}, POSITIVE),
    ("Uniform", {"low": [-2.0, 0.125], "high": [3.0, 5.5]}, REAL),
    ("Exponential", {"rate": SCALE}, POSITIVE),
    ("Laplace", {"loc": LOC, "scale": SCALE}, REAL),
    ("Gumbel", {"loc": LOC, "scale": SCALE}, REAL),
    ("Cauchy", {"loc": LOC, "scale": SCALE}, REAL),
    ("Bernoulli", {"probs": [0.25, 0.75]}, [[0, 1], [1, 0]]),
    ("Bernoulli", {"logits": [-1.5, 0.5]}, [[0, 1], [1, 0]]),
    ("Geometric", {"probs": [0.25, 0.75]}, [[0, 1], [4, 2]]),
    ("Geometric", {"logits": [-1.5, 0.5]}, [[0, 1], [4, 2]]),
    ("Categorical", {"probs": WEIGHTS}, [2, 0]),
    ("Categorical", {"logits": LOGITS}, [[3, 1], [0, 2]]),
    ("OneHotCategorical", {"probs": WEIGHTS}, HOT),
    ("OneHotCategorical", {"logits": LOGITS}, HOT),
    ("MultivariateNormal", {"loc": LOC, "covariance_matrix": COVARIANCE}, REAL),
    ("MultivariateNormal", {"loc": LOC, "precision_matrix": COVARIANCE}, REAL),
    ("MultivariateNormal", {"loc": LOC[0], "scale_tril": TRIANGLE}, REAL),
]

PAIRS = [
    ("Normal", {"loc": LOC, "scale": SCALE}, "Normal", {"loc": [0.5, 1.0], "scale": [1.5, 0.75]}),
    ("LogNormal", {"loc": LOC, "scale": SCALE}, "LogNormal", {"loc": 0.5, "scale": 1.5}),
    ("HalfNormal", {"scale": SCALE}, "HalfNormal", {"scale": [1.5, 0.75]}),
    ("Uniform", {"low": [0.0, 1.0], "high": [2.0, 3.0]},
     "Uniform", {"low": [-1.0, 1.5], "high": [4.0, 3.0]}),
    ("Exponential", {"rate": SCALE}, "Exponential", {"rate": [1.5, 0.75]}),
    ("Laplace", {"loc": LOC, "scale": SCALE}, "Laplace", {"loc": 0.5, "scale": [1.5, 0.75]}),
    ("Cauchy", {"loc": LOC, "scale": SCALE}, "Cauchy", {"loc": 0.5, "scale": [1.5, 0.75]}),
    ("Gumbel", {"loc": LOC, "scale": SCALE}, "Gumbel", {"loc": 0.5, "scale": [1.5, 0.75]}),
    ("Uniform", {"low": [0.0, 1.0], "high": [2.0, 4.0]}, "Normal", {"loc": 0.5, "scale": SCALE}),
    ("Laplace", {"loc": LOC, "scale": SCALE}, "Normal", {"loc": 0.5, "scale": [1.5, 0.75]}),
    ("Bernoulli", {"probs": [0.25, 0.75, 0.0, 0.5]}, "Bernoulli",
     {"probs": [0.5, 0.125, 0.5, 1.0]}),
    ("Geometric", {"probs": [0.25, 0.75]}, "Geometric", {"probs": [0.5, 0.125]}),
    ("Categorical", {"logits": LOGITS}, "Categorical", {"probs": WEIGHTS}),
    ("Categorical", {"probs": [0.5, 0.5, 0.0]}, "Categorical", {"probs": [0.25, 0.5, 0.25]}),
    ("Categorical", {"probs": [0.25, 0.5, 0.25]}, "Categorical", {"probs": [0.5, 0.5, 0.0]}),
    ("OneHotCategorical", {"logits": LOGITS}, "OneHotCategorical", {"probs": WEIGHTS}),
    ("MultivariateNormal", {"loc": LOC, "covariance_matrix": COVARIANCE}, "MultivariateNormal",
     {"loc": LOC[0], "scale_tril": TRIANGLE}),
]


def made(name, params, grad=False):
    leaves = {k: torch.tensor(v).requires_grad_(grad) for k, v in params.items()}
    return getattr(D, name)(**leaves), list(leaves.values())


def flat(x):
    """Numbers, with names where JSON has none."""
    return [v if v == v and abs(v) != float("inf") else str(v) for v in x.flatten().tolist()]


def case(name, params, values):
    d, leaves = made(name, params, True)
    up = 1 if name == "Categorical" else 0
    x = torch.tensor(values, dtype=torch.int64 if up else torch.float64)
    found = {}
    for method in ("mean", "variance", "stddev", "mode"):
        found[method] = getattr(d, method)
    found["entropy"] = d.entropy()
    found["log_prob"] = d.log_prob(x)
    for method, at in (("cdf", x), ("icdf", torch.tensor(SHARES))):
        try:
            found[method] = getattr(d, method)(at)
        except NotImplementedError:
            pass
    if up:
        found["mode"] = found["mode"] + 1
    row = {"class": name, "params": params, "values": (x + up).tolist(),
           "gives": {k: flat(v.detach()) for k, v in found.items()}}
    row["slopes"] = [flat(g) for g in torch.autograd.grad(found["log_prob"].sum(), leaves)]
    return row


def pair(p_name, p_params, q_name, q_params):
    p, leaves = made(p_name, p_params)
    q, _ = made(q_name, q_params)
    return {"p": [p_name, p_params], "q": [q_name, q_params],
            "kl": flat(D.kl_divergence(p, q))}


def main():
    cases = ",\n".join(json.dumps(case(*row)) for row in CASES)
    pairs = ",\n".join(json.dumps(pair(*row)) for row in PAIRS)
    version = {"torch": torch.__version__.split("+")[0]}
    print(f'{{"made": {json.dumps(version)},\n"shares": {json.dumps(SHARES)},\n'
          f'"cases": [\n{cases}],\n"pairs": [\n{pairs}]}}')


main()
