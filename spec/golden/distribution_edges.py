"""Writes distribution_edges.json: PyTorch's distributions of one number at the ends of their
supports and parameters.

    python3 spec/golden/distribution_edges.py > spec/golden/distribution_edges.json

A case is a class and its parameters; `fields` are its mean, variance, stddev, mode and entropy;
`log_prob`, `cdf` are at `values`, without checks; `icdf` is at `shares`; `inside` are the values
that log_prob takes with checks. `accepted` is a list of {class, parameters, is it taken?}.
Left out, as null or absent: values outside of the support of the classes in `OUTSIDE`, where
results have no meaning, and the results that are wrong in PyTorch. All in float64.
"""

import itertools
import json

import torch
import torch.distributions as D

torch.set_default_dtype(torch.float64)

NAN, INF = float("nan"), float("inf")
REAL = [-INF, -2.0, -1.0, -0.0, 0.25, 1.0, 2.0, 3.5, 30.0, INF, NAN]
ABOVE = [-1.0, 0.0, 1e-300, 0.25, 0.5, 1.0, 2.0, 5.0, 40.0, INF, NAN]
UNIT = [-0.5, 0.0, 1e-12, 0.25, 0.5, 0.75, 1.0, 1.5, NAN]
COUNTS = [-1.0, 0.0, 0.5, 1.0, 2.0, 3.0, 4.0, 7.0, INF, NAN]
SHARES = [0.0, 1e-9, 0.25, 0.5, 0.75, 1.0]

GRID = {
    "Normal": (dict(loc=[0, 1.5], scale=[0.5, 2]), REAL),
    "LogNormal": (dict(loc=[0, -1.5], scale=[0.5, 2]), ABOVE),
    "HalfNormal": (dict(scale=[0.5, 2]), ABOVE),
    "Uniform": (dict(low=[-1, 0], high=[1, 2]), REAL),
    "Exponential": (dict(rate=[0.5, 2]), ABOVE),
    "Laplace": (dict(loc=[0, 1], scale=[0.5, 2]), REAL),
    "Gumbel": (dict(loc=[0, 1], scale=[0.5, 2]), REAL),
    "Cauchy": (dict(loc=[0, 1], scale=[0.5, 2]), REAL),
    "HalfCauchy": (dict(scale=[0.5, 2]), ABOVE),
    "Pareto": (dict(scale=[0.5, 1], alpha=[0.5, 1, 1.5, 2, 3]), ABOVE),
    "GeneralizedPareto": (dict(loc=[0, 0.5], scale=[2],
                               concentration=[-0.5, 0, 0.25, 0.5, 0.75, 1, 1.5]), ABOVE),
    "Weibull": (dict(scale=[0.5, 2], concentration=[0.5, 1, 3]), ABOVE),
    "InverseGamma": (dict(concentration=[0.5, 1, 1.5, 2, 3], rate=[0.5, 2]), ABOVE),
    "FisherSnedecor": (dict(df1=[1, 2, 3], df2=[1, 2, 3, 4, 5]), ABOVE),
    "Kumaraswamy": (dict(concentration1=[0.5, 1, 2], concentration0=[0.5, 1, 2]), UNIT),
    "ContinuousBernoulli": (dict(probs=[0.1, 0.5, 0.75]), UNIT),
    "VonMises": (dict(loc=[0, 1], concentration=[0.5, 3]), REAL),
    "Gamma": (dict(concentration=[0.5, 1, 3], rate=[0.5, 2]), ABOVE),
    "Chi2": (dict(df=[1, 2, 5]), ABOVE),
    "Beta": (dict(concentration1=[0.5, 1, 2], concentration0=[0.5, 1, 2]), UNIT),
    "StudentT": (dict(df=[0.5, 1, 1.5, 2, 3], loc=[0, 1], scale=[2]), REAL),
    "Poisson": (dict(rate=[0, 0.5, 1, 2.5]), COUNTS),
    "Bernoulli": (dict(probs=[0, 0.25, 0.5, 0.75, 1]), COUNTS),
    "Geometric": (dict(probs=[0.25, 0.5, 1]), COUNTS),
    "Binomial": (dict(total_count=[0, 1, 3], probs=[0.25, 0.5]), COUNTS),
    "NegativeBinomial": (dict(total_count=[0.5, 1, 3], probs=[0.25, 0.5]), COUNTS),
}
TRIED = [-INF, -1.0, 0.0, 0.5, 1.0, 1.5, INF, NAN]

OUTSIDE = {"GeneralizedPareto", "Weibull", "InverseGamma", "FisherSnedecor", "Kumaraswamy",
           "Binomial", "NegativeBinomial"}


def encoded(x):
    return [v if abs(v) < INF else str(v) for v in
            (float(f"{v:.14g}") for v in torch.as_tensor(x).flatten().tolist())]


def put(case, name, f):
    try:
        case[name] = encoded(f())
    except (NotImplementedError, ValueError, AttributeError):
        pass


def case_of(name, given, values):
    d = getattr(D, name)(**{k: torch.tensor(float(v)) for k, v in given.items()},
                         validate_args=False)
    case = {"class": name, "params": given, "values": encoded(values), "fields": {}}
    for field in ["mean", "variance", "stddev", "mode"]:
        put(case["fields"], field, lambda: getattr(d, field))
    put(case["fields"], "entropy", d.entropy)
    x = torch.tensor(values)
    put(case, "log_prob", lambda: d.log_prob(x))
    put(case, "cdf", lambda: d.cdf(x))
    put(case, "icdf", lambda: d.icdf(torch.tensor(SHARES)))
    case["inside"] = [bool(v) for v in d.support.check(x).tolist()]
    correct(case, name, given)
    return case


def correct(case, name, given):
    """Removes results that have no meaning or are wrong."""
    if name in OUTSIDE:
        for key in {"log_prob", "cdf"} & case.keys():
            case[key] = [v if good else None for v, good in zip(case[key], case["inside"])]
    if name == "Gumbel":  # infinite; PyTorch clamps the share
        case["icdf"][0] = case["icdf"][-1] = None
    if name == "Kumaraswamy":  # log1p of numbers below -1; and NaN at 0 and 1
        del case["fields"]["mode"]
        for key in {"log_prob", "cdf"} & case.keys():
            case[key][1] = case[key][6] = None
    if name == "Weibull" and given["concentration"] < 1:  # 0
        del case["fields"]["mode"]
    if name != "VonMises":  # a density is 0 at infinity
        for i, (x, v) in enumerate(zip(case["values"], case["log_prob"])):
            if x in {"inf", "-inf"} and v == "nan" and case["inside"][i]:
                case["log_prob"][i] = "-inf"
    if name == "Poisson":  # infinity is no count
        case["log_prob"][COUNTS.index(INF)] = None


def accepted(name, given):
    try:
        getattr(D, name)(**{k: torch.tensor(float(v)) for k, v in given.items()},
                         validate_args=True)
    except ValueError:
        return False
    return True


def main():
    cases, taken = [], []
    for name, (grid, values) in GRID.items():
        for chosen in itertools.product(*grid.values()):
            cases.append(case_of(name, dict(zip(grid, chosen)), values))
        plain = {key: list_[-1] for key, list_ in grid.items()}
        for key in grid:
            for value in TRIED:
                given = {**plain, key: value}
                shown = {k: v if abs(v) < INF else str(v) for k, v in given.items()}
                taken.append([name, shown, accepted(name, given)])
    lines = ",\n".join(json.dumps(c, separators=(",", ":")) for c in cases)
    rows = ",\n".join(json.dumps(c, separators=(",", ":")) for c in taken)
    print(f'{{"shares":{SHARES},"cases":[\n{lines}\n],"accepted":[\n{rows}\n]}}')


main()
