"""Writes rare_distributions.json: results of PyTorch's rarer distributions and transforms for a few
values, and its divergences of each pair of classes.

    python3 spec/golden/rare_distributions.py > spec/golden/rare_distributions.json

The format is that of distributions.py, which has the other distributions. `fixed` are parameters
without a gradient, numbers or tensors; `order` are the names of the `slopes`. Results that PyTorch
lacks, or that are wrong there (`wrong`, with the reason), are left out. All in float64.
"""

import json

import torch
import torch.distributions as D
from torch.distributions import transforms as T

torch.set_default_dtype(torch.float64)

REAL = [[-1.5, 0.25], [2.0, 4.5]]
POSITIVE = [[0.25, 1.5], [3.0, 0.75]]
ABOVE = [[2.25, 3.5], [3.0, 2.75]]
UNIT = [[0.125, 0.5], [0.75, 0.9375]]
LOGITS = [[0.5, -1.0, 0.25, 2.0], [0.0, 3.0, -0.5, 1.0]]
WEIGHTS = [[0.25, 0.5, 0.125, 0.125], [1.0, 2.0, 4.0, 1.0]]
PARTS = [[0.25, 0.125, 0.5, 0.125], [0.0625, 0.1875, 0.25, 0.5]]
FACTOR = [[0.5, 1.0], [-0.25, 0.75], [1.5, 0.0]]
COVARIANCE = [[2.0, 0.5], [0.5, 1.25]]
TRIANGLE = [[1.5, 0.0], [-0.5, 0.75]]
CORRELATED = [[1.0, 0.0, 0.0], [0.6, 0.8, 0.0], [0.48, 0.6, 0.64]]
NO = ()

CASES = [  # class, parameters, values, fixed, wrong
    ("HalfCauchy", {"scale": [0.5, 2.0]}, POSITIVE),
    ("Pareto", {"scale": [0.5, 2.0], "alpha": [[1.5], [3.0]]}, ABOVE),
    ("Pareto", {"scale": [0.5, 2.0], "alpha": 0.75}, ABOVE),
    ("GeneralizedPareto", {"loc": [-2.0, 0.125], "scale": [3.0, 0.5], "concentration":
                           [[0.25], [0.75]]}, [[0.5, 1.5], [2.0, 4.5]]),
    ("GeneralizedPareto", {"loc": [-2.0, 0.125], "scale": 3.0, "concentration": [0.0, -0.5]},
     [[0.5, 1.5], [2.0, 4.5]], NO, {"slopes": "0 where the concentration is"}),
    ("Weibull", {"scale": [0.5, 2.0], "concentration": [[1.5], [3.0]]}, POSITIVE),
    ("InverseGamma", {"concentration": [2.5, 0.75], "rate": [[1.5], [3.0]]}, POSITIVE, NO,
     {"cdf": "none there"}),
    ("FisherSnedecor", {"df1": [2.5, 0.75], "df2": [[4.5], [3.0]]}, POSITIVE),
    ("Kumaraswamy", {"concentration1": [2.5, 1.75], "concentration0": [[1.5], [3.0]]}, UNIT, NO,
     {"mode": "log1p of numbers below -1"}),
    ("ContinuousBernoulli", {"probs": [0.25, 0.875]}, UNIT),
    ("ContinuousBernoulli", {"logits": [-1.5, 3.0]}, UNIT),
    ("VonMises", {"loc": [-0.5, 1.25], "concentration": [0.5, 20.0]}, REAL, NO,
     {"log_prob": "good for 6 digits", "variance": "good for 6 digits",
      "stddev": "good for 6 digits"}),
    ("Binomial", {"probs": [0.25, 0.75]}, [[0, 1], [4, 5]], {"total_count": 5.0}),
    ("Binomial", {"logits": [-1.5, 0.5]}, [[0, 1], [3, 3]], {"total_count": [3.0, 7.0]},
     {"entropy": "of one total_count only"}),
    ("NegativeBinomial", {"total_count": [2.5, 4.0], "probs": [0.25, 0.75]}, [[0, 1], [4, 9]]),
    ("NegativeBinomial", {"total_count": 3.0, "logits": [-1.5, 0.5]}, [[0, 1], [4, 9]]),
    ("Multinomial", {"probs": WEIGHTS}, [[2, 1, 0, 2], [0, 0, 5, 0]], {"total_count": 5}),
    ("Multinomial", {"logits": LOGITS}, [[2, 1, 0, 1], [0, 0, 4, 0]], {"total_count": 4}),
    ("RelaxedBernoulli", {"temperature": 0.75, "probs": [0.25, 0.875]}, UNIT),
    ("RelaxedBernoulli", {"temperature": 1.5, "logits": [-1.5, 3.0]}, UNIT),
    ("RelaxedOneHotCategorical", {"temperature": 0.75, "probs": WEIGHTS}, PARTS),
    ("RelaxedOneHotCategorical", {"temperature": 1.5, "logits": LOGITS}, PARTS),
    ("OneHotCategoricalStraightThrough", {"logits": LOGITS}, [[0, 0, 1, 0], [1, 0, 0, 0]]),
    ("LogisticNormal", {"loc": [[-0.5, 1.25, 0.0], [0.5, 0.0, 1.0]], "scale": [0.5, 2.0, 1.0]},
     PARTS),
    ("LowRankMultivariateNormal", {"loc": [[-0.5, 1.25, 0.0], [0.5, 0.0, 1.0]],
                                   "cov_factor": FACTOR, "cov_diag": [0.5, 2.0, 1.0]},
     [[0.25, -1.0, 0.5], [2.0, 1.5, -0.75]]),
    ("LKJCholesky", {"concentration": [0.5, 3.0]}, [CORRELATED, CORRELATED], {"dim": 3}),
    ("Wishart", {"df": [2.5, 6.0], "covariance_matrix": COVARIANCE}, [COVARIANCE, COVARIANCE]),
    ("Wishart", {"df": 6.0, "precision_matrix": COVARIANCE}, COVARIANCE),
    ("Wishart", {"df": 6.0, "scale_tril": TRIANGLE}, COVARIANCE, NO,
     {"slopes": "not 0 above the diagonal"}),
]

OF = {  # for each class two distributions for divergences
    "Bernoulli": {"probs": [0.25, 0.75]}, "Poisson": {"rate": [0.5, 2.0]},
    "Beta": {"concentration1": [2.5, 0.75], "concentration0": [1.5, 3.0]},
    "ContinuousBernoulli": {"logits": [-1.5, 3.0]}, "Exponential": {"rate": [0.5, 2.0]},
    "Gamma": {"concentration": [2.5, 0.75], "rate": [1.5, 3.0]},
    "Gumbel": {"loc": [-0.5, 1.25], "scale": [0.5, 2.0]},
    "Laplace": {"loc": [-0.5, 1.25], "scale": [0.5, 2.0]},
    "Normal": {"loc": [-0.5, 1.25], "scale": [0.5, 2.0]},
    "Pareto": {"scale": [0.5, 2.0], "alpha": [3.5, 2.5]},
    "Uniform": {"low": [0.25, 0.5], "high": [0.75, 0.875]},
    "HalfCauchy": {"scale": [0.5, 2.0]},
    "InverseGamma": {"concentration": [2.5, 0.75], "rate": [1.5, 3.0]},
    "Binomial": {"total_count": [5.0, 4.0], "probs": [0.25, 0.75]},
    "LowRankMultivariateNormal": {"loc": [-0.5, 1.25, 0.0], "cov_factor": FACTOR,
                                  "cov_diag": [0.5, 2.0, 1.0]},
    "MultivariateNormal": {"loc": [0.5, 1.0, -0.75], "scale_tril": CORRELATED},
}
OTHERS = {
    "Beta": {"concentration1": [1.5, 2.0], "concentration0": [0.75, 3.0]},
    "ContinuousBernoulli": {"logits": [0.75, -2.0]}, "HalfCauchy": {"scale": [1.5, 0.75]},
    "InverseGamma": {"concentration": [1.5, 2.0], "rate": [0.75, 3.0]},
    "Pareto": {"scale": [0.25, 3.0], "alpha": [1.5, 2.0]},
    "Binomial": {"total_count": [5.0, 4.0], "probs": [0.5, 0.125]},
    "LowRankMultivariateNormal": {"loc": [0.0, 0.25, 1.0], "cov_factor": [[1.0], [0.5], [-0.75]],
                                  "cov_diag": [1.5, 0.75, 1.0]},
    "Uniform": {"low": [0.25, 0.25], "high": [0.75, 1.5]},
}
WRONG = {("ContinuousBernoulli", "Uniform"): "infinite where it is finite"}

STICKS = [[0.5, -1.0, 0.25], [0.0, 3.0, -0.5]]
TRANSFORMS = [  # Lua's constructor, the transform, x
    ("D.AbsTransform()", T.AbsTransform(), REAL),
    ("D.AffineTransform(0.5, -2, 1)", T.AffineTransform(0.5, -2.0, event_dim=1), REAL),
    ("D.SoftplusTransform()", T.SoftplusTransform(), REAL),
    ("D.PowerTransform(-1.5)", T.PowerTransform(torch.tensor(-1.5)), POSITIVE),
    ("D.CumulativeDistributionTransform(D.Normal(f64 {0.5, 1}, 2))",
     T.CumulativeDistributionTransform(D.Normal(torch.tensor([0.5, 1.0]), 2.0)), REAL),
    ("D.IndependentTransform(D.ExpTransform(), 1)", T.IndependentTransform(T.ExpTransform(), 1),
     REAL),
    ("D.identity_transform", T.identity_transform, REAL),
    ("D.SoftmaxTransform()", T.SoftmaxTransform(), STICKS),
    ("D.StickBreakingTransform()", T.StickBreakingTransform(), STICKS),
    ("D.LowerCholeskyTransform()", T.LowerCholeskyTransform(), COVARIANCE),
    ("D.PositiveDefiniteTransform()", T.PositiveDefiniteTransform(), COVARIANCE),
    ("D.CorrCholeskyTransform()", T.CorrCholeskyTransform(), STICKS),
    ("D.ReshapeTransform({2, 2}, {4})", T.ReshapeTransform((2, 2), (4,)), [REAL, POSITIVE]),
    ("D.CatTransform({D.ExpTransform(), D.AffineTransform(1, 2)}, -1, {1, 2})",
     T.CatTransform([T.ExpTransform(), T.AffineTransform(1.0, 2.0)], -1, [1, 2]), STICKS),
    ("D.CatTransform({D.ExpTransform(), D.AffineTransform(1, 2)}, 1)",
     T.CatTransform([T.ExpTransform(), T.AffineTransform(1.0, 2.0)], 0), STICKS),
    ("D.StackTransform({D.ExpTransform(), D.TanhTransform()}, 1)",
     T.StackTransform([T.ExpTransform(), T.TanhTransform()], 0), STICKS),
    ("D.ComposeTransform {D.AffineTransform(0.5, 2), D.StickBreakingTransform()}",
     T.ComposeTransform([T.AffineTransform(0.5, 2.0), T.StickBreakingTransform()]), STICKS),
]


def flat(x):
    """Numbers, with names where JSON has none."""
    return [v if v == v and abs(v) != float("inf") else str(v)
            for v in x.detach().double().flatten().tolist()]


def case(name, params, values, fixed=NO, wrong=NO):
    leaves = {k: torch.tensor(v).requires_grad_() for k, v in params.items()}
    plain = {k: torch.tensor(v) if isinstance(v, (list, float)) else v
             for k, v in dict(fixed).items()}
    d = getattr(D, name)(**leaves, **plain)
    x = torch.tensor(values, dtype=torch.float64)
    found = {}
    for method, arg in (("mean", NO), ("variance", NO), ("stddev", NO), ("mode", NO),
                        ("entropy", NO), ("log_prob", (x,)), ("cdf", (x,)),
                        ("icdf", (torch.tensor(UNIT),))):
        if method in dict(wrong):
            continue
        try:
            value = getattr(d, method)
            found[method] = value(*arg) if callable(value) else value
        except NotImplementedError:
            pass
    row = {"class": name, "params": params, "fixed": dict(fixed), "values": values,
           "gives": {k: flat(v) for k, v in found.items()}, "order": list(params)}
    if "log_prob" in found and "slopes" not in dict(wrong):
        row["slopes"] = [flat(g) for g in
                         torch.autograd.grad(found["log_prob"].sum(), list(leaves.values()))]
    return row


def made(name, params):
    return getattr(D, name)(**{k: torch.tensor(v) for k, v in params.items()})


def pairs():
    for p_class, q_class in sorted(D.kl._KL_REGISTRY, key=lambda c: (c[0].__name__, c[1].__name__)):
        p, q = p_class.__name__, q_class.__name__
        for q_params in (OF.get(q), OTHERS.get(q)):
            if p not in OF or q_params is None or (p, q) in WRONG:
                continue
            kl = D.kl_divergence(made(p, OF[p]), made(q, q_params))
            yield {"p": [p, OF[p]], "q": [q, q_params], "kl": flat(kl)}
    for p in ("HalfCauchy", "InverseGamma"):  # by what they are transformed from
        kl = D.kl_divergence(made(p, OF[p]), made(p, OTHERS[p]))
        yield {"p": [p, OF[p]], "q": [p, OTHERS[p]], "kl": flat(kl)}


def transformed(text, t, x):
    x = torch.tensor(x)
    y = t(x)
    row = {"lua": text, "x": x.tolist(), "y": y.tolist(), "back": t.inv(y).tolist()}
    try:
        row["size"] = t.log_abs_det_jacobian(x, y)
        row["size_shape"] = list(row["size"].shape)
        row["size"] = flat(row["size"])
    except NotImplementedError:
        pass
    return row


def main():
    cases = ",\n".join(json.dumps(case(*row)) for row in CASES)
    kl = ",\n".join(json.dumps(row) for row in pairs())
    seen = ",\n".join(json.dumps(transformed(*row)) for row in TRANSFORMS)
    version = {"torch": torch.__version__.split("+")[0]}
    print(f'{{"made": {json.dumps(version)},\n"shares": {json.dumps(UNIT)},\n"cases": [\n{cases}],\n'
          f'"pairs": [\n{kl}],\n"transforms": [\n{seen}]}}')


main()
