"""Recurrent networks: single steps and whole sequences."""

import torch

from kit import B, I, N, P, R, S, T, U, V, inf, nan, op


def cell(name, gates, pair=False):
    def fn(input, hx, w_ih, w_hh, b_ih=None, b_hh=None):
        return getattr(torch, name)(input, hx, w_ih, w_hh, b_ih, b_hh)

    f = op(name, "input hx w_ih w_hh b_ih b_hh", fn, "soft")

    def ask(label, n, i, h, biases=True, repeated=False):
        state = [V(n, h), V(n, h)] if pair else V(n, h)
        x = V(1, i).then(lambda x: x.expand(n, i)) if repeated else V(n, i)
        rest = [V(gates * h), V(gates * h)] if biases else []
        f(label, x, state, V(gates * h, i), V(gates * h, h), *rest)

    ask("two sequences", 2, 3, 2)
    ask("no biases", 2, 3, 2, biases=False)
    ask("one of each", 1, 1, 1)
    ask("seventeen inputs", 2, 17, 2)
    ask("five states", 3, 2, 5)
    ask("no sequences", 0, 3, 2)
    ask("the same input", 3, 2, 2, repeated=True)


def layers(name, gates, pair=False):
    def fn(input, hx, params, has_biases=True, num_layers=1, dropout=0.0, train=False,
           bidirectional=False, batch_first=False):
        return getattr(torch, name)(input, hx, params, has_biases, num_layers, dropout, train,
                                    bidirectional, batch_first)

    f = op(name, "input hx params", fn, "soft")

    def ask(label, steps, n, i, h, first=False, **named):
        biases, count = named.get("has_biases", True), named.get("num_layers", 1)
        ways = 2 if named.get("bidirectional") else 1
        params = []
        for layer in range(count):
            for _ in range(ways):
                params += [V(gates * h, i if layer == 0 else h * ways), V(gates * h, h)]
                params += [V(gates * h), V(gates * h)] if biases else []
        state = [V(count * ways, n, h), V(count * ways, n, h)] if pair else V(count * ways, n, h)
        f(label, V(n, steps, i) if first else V(steps, n, i), state, params,
          **({"batch_first": True} if first else {}), **named)

    ask("three steps", 3, 2, 3, 2)
    ask("no biases", 3, 2, 3, 2, has_biases=False)
    ask("two layers", 2, 2, 3, 2, num_layers=2)
    ask("both directions", 3, 1, 2, 2, bidirectional=True)
    ask("two layers in both directions", 2, 1, 2, 2, num_layers=2, bidirectional=True)
    ask("batch first", 3, 2, 3, 2, first=True)
    ask("one step of one", 1, 1, 1, 1)
    ask("seventeen steps", 17, 1, 2, 2)


for kind, gates in (("rnn_tanh", 1), ("rnn_relu", 1), ("gru", 3), ("lstm", 4)):
    cell(kind + "_cell", gates, kind == "lstm")
    layers(kind, gates, kind == "lstm")
