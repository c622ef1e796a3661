"""Writes modules.json: PyTorch's results, gradients and state dicts of modules with their options.

    python3 spec/golden/modules.py > spec/golden/modules.json

A row is a constructor, the inputs and the call. They are written in Python and translated to Lua.
All is float64; parameters are sines. The loss is the sum of the elements of all results times
cosines of their positions.
"""

import json
import warnings

import torch
from torch import nn

from calls_kit import DIMS, B, I, L, P, T, U, X, flat, shown, sines, translate, weighed

warnings.simplefilter("ignore")
torch.set_default_dtype(torch.float64)

ATTENTION = [X(4, 2, 6), X(5, 2, 6), X(5, 2, 6)]
SELF = [X(4, 2, 6)]
SEQ = [X(5, 3, 4)]

ROWS = [
    # attention
    ("nn.MultiheadAttention(6, 2)", SELF, "m(x1, x1, x1)"),
    ("nn.MultiheadAttention(6, 3, bias=False)", ATTENTION, "m(x1, x2, x3)"),
    ("nn.MultiheadAttention(6, 3, bias=False)", ATTENTION, "m(x1, x2, x2, need_weights=False)"),
    ("nn.MultiheadAttention(6, 2, batch_first=True)", [X(2, 4, 6), X(2, 5, 6)],
     "m(x1, x2, x2, average_attn_weights=False)"),
    ("nn.MultiheadAttention(6, 2, kdim=3)", [X(4, 2, 6), X(5, 2, 3), X(5, 2, 6)],
     "m(x1, x2, x3)"),
    ("nn.MultiheadAttention(6, 2, vdim=3)", [X(4, 2, 6), X(5, 2, 6), X(5, 2, 3)],
     "m(x1, x2, x3)"),
    ("nn.MultiheadAttention(6, 2, kdim=3, vdim=5, bias=False, batch_first=True)",
     [X(2, 4, 6), X(2, 5, 3), X(2, 5, 5)], "m(x1, x2, x3)"),
    ("nn.MultiheadAttention(6, 2, add_bias_kv=True)", [*SELF, B(2, 4), B(4, 4)],
     "m(x1, x1, x1, key_padding_mask=b2, attn_mask=b3)"),
    ("nn.MultiheadAttention(6, 2, add_bias_kv=True, add_zero_attn=True)", [*ATTENTION, B(4, 5)],
     "m(x1, x2, x3, attn_mask=b4)"),
    ("nn.MultiheadAttention(6, 2, add_zero_attn=True)", [*ATTENTION, B(2, 5)],
     "m(x1, x2, x3, key_padding_mask=b4)"),
    ("nn.MultiheadAttention(6, 2, add_zero_attn=True)", [X(4, 6), X(5, 6), B(5)],
     "m(x1, x2, x2, key_padding_mask=b3)"),
    ("nn.MultiheadAttention(6, 2)", [*ATTENTION, X(4, 5)], "m(x1, x2, x3, attn_mask=x4)"),
    ("nn.MultiheadAttention(6, 2)", [*ATTENTION, X(4, 4, 5), B(2, 5)],
     "m(x1, x2, x3, attn_mask=x4, key_padding_mask=b5)"),
    ("nn.MultiheadAttention(6, 2)", [*ATTENTION, X(4, 4, 5)],
     "m(x1, x2, x3, attn_mask=x4, average_attn_weights=False)"),
    ("nn.MultiheadAttention(6, 2, batch_first=True)", [X(2, 4, 6), X(2, 4, 6), X(2, 4, 6)],
     "m(x1, x1, x3)"),
    ("nn.MultiheadAttention(6, 2)", [X(4, 6), X(4, 6), X(2, 4, 4)],
     "m(x1, x2, x1, attn_mask=x3, average_attn_weights=False)"),
    # transformers
    ("nn.TransformerEncoderLayer(6, 2, 5, 0)", [*SELF, B(4, 4)], "m(x1, src_mask=b2)"),
    ("nn.TransformerEncoderLayer(6, 2, 5, 0, 'gelu', bias=False)", SELF, "m(x1)"),
    ("nn.TransformerEncoderLayer(6, 2, 5, 0, batch_first=True, norm_first=True)",
     [X(2, 4, 6), B(2, 4)], "m(x1, src_key_padding_mask=b2)"),
    ("nn.TransformerEncoderLayer(6, 2, 5, 0, layer_norm_eps=0.5)", [X(4, 6)], "m(x1)"),
    ("nn.TransformerDecoderLayer(6, 2, 5, 0)", [*SELF, X(5, 2, 6), B(4, 4)],
     "m(x1, x2, tgt_mask=b3)"),
    ("nn.TransformerDecoderLayer(6, 2, 5, 0, 'gelu')", [*SELF, X(5, 2, 6), X(4, 5)],
     "m(x1, x2, memory_mask=x3)"),
    ("nn.TransformerDecoderLayer(6, 2, 5, 0, batch_first=True)", [X(2, 4, 6), X(2, 5, 6), B(2, 4)],
     "m(x1, x2, tgt_key_padding_mask=b3)"),
    ("nn.TransformerDecoderLayer(6, 2, 5, 0, norm_first=True, bias=False)",
     [X(4, 2, 6), X(5, 2, 6), B(2, 5)], "m(x1, x2, memory_key_padding_mask=b3)"),
    ("nn.TransformerEncoder(nn.TransformerEncoderLayer(6, 2, 5, 0), 2, nn.LayerNorm(6))",
     [*SELF, X(4, 4), B(2, 4)], "m(x1, mask=x2, src_key_padding_mask=b3)"),
    ("nn.TransformerDecoder(nn.TransformerDecoderLayer(6, 2, 5, 0), 2)",
     [*SELF, X(5, 2, 6), X(4, 4), X(4, 5)], "m(x1, x2, tgt_mask=x3, memory_mask=x4)"),
    ("nn.TransformerDecoder(nn.TransformerDecoderLayer(6, 2, 5, 0), 1, nn.LayerNorm(6))",
     [*SELF, X(5, 2, 6), B(2, 4), B(2, 5)],
     "m(x1, x2, tgt_key_padding_mask=b3, memory_key_padding_mask=b4)"),
    ("nn.Transformer(6, 2, 1, 2, 5, 0)", [X(5, 2, 6), X(4, 2, 6), X(5, 5), X(4, 4), X(4, 5)],
     "m(x1, x2, src_mask=x3, tgt_mask=x4, memory_mask=x5)"),
    ("nn.Transformer(6, 2, 2, 1, 5, 0, 'gelu', batch_first=True, norm_first=True, bias=False)",
     [X(2, 5, 6), X(2, 4, 6), B(2, 5), B(2, 4), B(2, 5)],
     "m(x1, x2, src_key_padding_mask=b3, tgt_key_padding_mask=b4, memory_key_padding_mask=b5)"),
    # recurrent
    ("nn.RNN(4, 3)", [*SEQ, X(1, 3, 3)], "m(x1, x2)"),
    ("nn.RNN(4, 3, 2, nonlinearity='relu', bidirectional=True)", SEQ, "m(x1)"),
    ("nn.RNN(4, 3, bias=False, batch_first=True)", [*SEQ, X(1, 5, 3)], "m(x1, x2)"),
    ("nn.GRU(4, 3, 2, batch_first=True, bidirectional=True)", [*SEQ, X(4, 5, 3)], "m(x1, x2)"),
    ("nn.GRU(4, 3, 2, bias=False)", [*SEQ], "m(x1)"),
    ("nn.GRU(4, 3, bidirectional=True)", [X(5, 4), X(2, 3)], "m(x1, x2)"),
    ("nn.LSTM(4, 3, 2)", [*SEQ, X(2, 3, 3), X(2, 3, 3)], "m(x1, (x2, x3))"),
    ("nn.LSTM(4, 3, batch_first=True, bias=False, bidirectional=True)",
     [*SEQ, X(2, 5, 3), X(2, 5, 3)], "m(x1, (x2, x3))"),
    ("nn.LSTM(4, 3, batch_first=True)", [X(5, 4), X(1, 3), X(1, 3)], "m(x1, (x2, x3))"),
    ("nn.LSTM(4, 3, 2, batch_first=True)", [X(5, 4)], "m(x1)"),
    ("nn.LSTM(4, 3, 2, bidirectional=True, proj_size=2, bias=False)",
     [*SEQ, X(4, 3, 2), X(4, 3, 3)], "m(x1, (x2, x3))"),
    ("nn.LSTM(4, 3, proj_size=2)", [X(5, 4), X(1, 2), X(1, 3)], "m(x1, (x2, x3))"),
    ("nn.RNNCell(4, 3)", [X(2, 4), X(2, 3)], "m(x1, x2)"),
    ("nn.RNNCell(4, 3, False, 'relu')", [X(4), X(3)], "m(x1, x2)"),
    ("nn.RNNCell(4, 3)", [X(4)], "m(x1)"),
    ("nn.LSTMCell(4, 3)", [X(2, 4), X(2, 3), X(2, 3)], "m(x1, (x2, x3))"),
    ("nn.LSTMCell(4, 3, bias=False)", [X(4), X(3), X(3)], "m(x1, (x2, x3))"),
    ("nn.LSTMCell(4, 3)", [X(4)], "m(x1)"),
    ("nn.GRUCell(4, 3)", [X(2, 4), X(2, 3)], "m(x1, x2)"),
    ("nn.GRUCell(4, 3, bias=False)", [X(4), X(3)], "m(x1, x2)"),
    # convolutions
    ("nn.Conv1d(4, 6, 3, 2, 1)", [X(2, 4, 7)], "m(x1)"),
    ("nn.Conv1d(4, 6, 3, padding='same', dilation=2, groups=2)", [X(4, 7)], "m(x1)"),
    ("nn.Conv1d(4, 2, 2, padding=2, padding_mode='reflect')", [X(2, 4, 7)], "m(x1)"),
    ("nn.Conv2d(2, 4, (3, 2), (2, 1), (1, 2), (2, 1), 2, False)", [X(2, 2, 7, 6)], "m(x1)"),
    ("nn.Conv2d(2, 3, (3, 2), padding=(2, 1), padding_mode='circular')", [X(2, 2, 5, 6)], "m(x1)"),
    ("nn.Conv2d(2, 3, (4, 3), padding='same', dilation=(1, 2), padding_mode='replicate')",
     [X(2, 2, 5, 6)], "m(x1)"),
    ("nn.Conv2d(2, 3, (2, 3), padding='valid', padding_mode='reflect')", [X(2, 5, 6)], "m(x1)"),
    ("nn.Conv3d(2, 4, (2, 1, 3), (1, 2, 1), (0, 1, 2), (2, 1, 1), 2)", [X(1, 2, 4, 3, 5)],
     "m(x1)"),
    ("nn.Conv3d(1, 2, 2, padding=1, padding_mode='replicate', bias=False)", [X(1, 3, 2, 3)],
     "m(x1)"),
    ("nn.ConvTranspose1d(4, 6, 3, 2, 1, 1, 2, dilation=2)", [X(2, 4, 5)], "m(x1)"),
    ("nn.ConvTranspose1d(4, 2, 3, 3)", [X(2, 4, 5)], "m(x1, (16,))"),
    ("nn.ConvTranspose2d(2, 4, (3, 2), (2, 3), (1, 0), (1, 2), 2, False)", [X(2, 2, 3, 4)],
     "m(x1)"),
    ("nn.ConvTranspose2d(2, 3, 3, 2, 1)", [X(2, 2, 3, 4)], "m(x1, (6, 7))"),
    ("nn.ConvTranspose3d(2, 2, 2, (2, 1, 3), 1, (1, 0, 2), dilation=(1, 2, 3))",
     [X(1, 2, 3, 3, 2)], "m(x1)"),
    # normalization
    ("nn.BatchNorm1d(4)", [X(5, 4)], "m(x1)"),
    ("nn.BatchNorm1d(4, eps=0.5, momentum=0.25)", [X(2, 4, 3)], "m(x1)"),
    ("nn.BatchNorm2d(2, momentum=None)", [X(3, 2, 2, 2)], "m(x1)"),
    ("nn.BatchNorm2d(2, affine=False)", [X(3, 2, 2, 2)], "m(x1)"),
    ("nn.BatchNorm3d(2, track_running_stats=False)", [X(3, 2, 2, 1, 2)], "m(x1)"),
    ("nn.InstanceNorm1d(3)", [X(2, 3, 4)], "m(x1)"),
    ("nn.InstanceNorm1d(3, affine=True, eps=0.25)", [X(3, 4)], "m(x1)"),
    ("nn.InstanceNorm2d(3, track_running_stats=True)", [X(2, 3, 4, 2)], "m(x1)"),
    ("nn.InstanceNorm2d(3, affine=True, track_running_stats=True, momentum=0.5)",
     [X(3, 2, 4)], "m(x1)"),
    ("nn.InstanceNorm3d(2)", [X(2, 2, 2, 2, 3)], "m(x1)"),
    ("nn.GroupNorm(2, 4)", [X(3, 4, 5)], "m(x1)"),
    ("nn.GroupNorm(2, 4, 0.5, False)", [X(3, 4)], "m(x1)"),
    ("nn.LayerNorm((3, 4))", [X(2, 3, 4)], "m(x1)"),
    ("nn.LayerNorm(4, 0.5, bias=False)", [X(2, 3, 4)], "m(x1)"),
    ("nn.LayerNorm(4, elementwise_affine=False)", [X(2, 3, 4)], "m(x1)"),
    ("nn.RMSNorm((3, 4))", [X(2, 3, 4)], "m(x1)"),
    ("nn.RMSNorm(4, 0.5, False)", [X(2, 3, 4)], "m(x1)"),
    ("nn.LocalResponseNorm(2)", [X(2, 4, 3)], "m(x1)"),
    ("nn.LocalResponseNorm(3, 0.5, 0.25, 2)", [X(2, 4, 3, 2)], "m(x1)"),
    # embeddings
    ("nn.Embedding(5, 3)", [I(5, 2, 4)], "m(i1)"),
    ("nn.Embedding(5, 3, padding_idx=2)", [I(5, 2, 4)], "m(i1)"),
    ("nn.Embedding(5, 3, padding_idx=-1, scale_grad_by_freq=True)", [I(4, 2, 4)], "m(i1)"),
    ("nn.Embedding(5, 3, max_norm=0.5)", [I(5, 2, 2)], "m(i1)"),
    ("nn.Embedding(5, 3, max_norm=0.5, norm_type=1)", [I(5, 4)], "m(i1)"),
    ("nn.EmbeddingBag(5, 3)", [I(5, 2, 4)], "m(i1)"),
    ("nn.EmbeddingBag(5, 3, mode='sum', padding_idx=1)", [I(5, 2, 4)], "m(i1)"),
    ("nn.EmbeddingBag(5, 3, mode='max')", [I(5, 6), L(0, 2, 3)], "m(i1, l2)"),
    ("nn.EmbeddingBag(5, 3, mode='sum', include_last_offset=True)", [I(5, 6), L(0, 2, 6)],
     "m(i1, l2)"),
    ("nn.EmbeddingBag(5, 3, mode='sum')", [I(5, 2, 3), X(2, 3)], "m(i1, per_sample_weights=x2)"),
    ("nn.EmbeddingBag(5, 3, max_norm=0.5, scale_grad_by_freq=True)", [I(5, 2, 3)], "m(i1)"),
    ("nn.EmbeddingBag(5, 3, padding_idx=-2)", [I(5, 2, 3)], "m(i1)"),
    # linear layers
    ("nn.Linear(4, 3)", [X(2, 2, 4)], "m(x1)"),
    ("nn.Linear(4, 3, bias=False)", [X(4)], "m(x1)"),
    ("nn.Bilinear(3, 2, 4)", [X(2, 5, 3), X(2, 5, 2)], "m(x1, x2)"),
    ("nn.Bilinear(3, 2, 4, bias=False)", [X(3), X(2)], "m(x1, x2)"),
    ("nn.PReLU()", [X(2, 3, 4)], "m(x1)"),
    ("nn.PReLU(3, 0.5)", [X(2, 3, 4)], "m(x1)"),
    ("nn.AdaptiveLogSoftmaxWithLoss(8, 7, (2, 4), 2)", [X(4, 8), I(7, 4)], "m(x1, i2)"),
    ("nn.AdaptiveLogSoftmaxWithLoss(8, 7, (3,), 4, head_bias=True)", [X(4, 8), I(7, 4)],
     "m(x1, i2)"),
    ("nn.AdaptiveLogSoftmaxWithLoss(8, 7, (2, 4), 2, True)", [X(4, 8)], "m.log_prob(x1)"),
    # pooling
    ("nn.MaxPool1d(3, 2, 1, 1, ceil_mode=True)", [X(2, 3, 8)], "m(x1)"),
    ("nn.MaxPool1d(2, dilation=3)", [X(3, 8)], "m(x1)"),
    ("nn.MaxPool2d((3, 2), padding=(1, 0))", [X(2, 3, 7, 6)], "m(x1)"),
    ("nn.MaxPool2d(2, (2, 1), 1, (1, 2), ceil_mode=True)", [X(3, 7, 6)], "m(x1)"),
    ("nn.MaxPool3d((2, 1, 3), stride=(1, 2, 1), padding=(1, 0, 1))", [X(1, 2, 3, 4, 4)], "m(x1)"),
    ("nn.AvgPool1d(3, 2, 1)", [X(2, 3, 8)], "m(x1)"),
    ("nn.AvgPool1d(3, 2, 1, True, False)", [X(2, 3, 8)], "m(x1)"),
    ("nn.AvgPool2d((3, 2), (2, 1), (1, 0), count_include_pad=False)", [X(2, 3, 7, 6)], "m(x1)"),
    ("nn.AvgPool2d(3, ceil_mode=True)", [X(3, 7, 8)], "m(x1)"),
    ("nn.AvgPool2d(3, 2, 1, divisor_override=5)", [X(2, 3, 7, 6)], "m(x1)"),
    ("nn.AvgPool3d((2, 1, 3), (1, 2, 2), (1, 0, 1))", [X(1, 2, 3, 4, 4)], "m(x1)"),
    ("nn.AdaptiveAvgPool1d(3)", [X(2, 3, 8)], "m(x1)"),
    ("nn.AdaptiveAvgPool2d((3, None))", [X(2, 3, 7, 5)], "m(x1)"),
    ("nn.AdaptiveAvgPool3d((2, None, 3))", [X(2, 3, 5, 4)], "m(x1)"),
    ("nn.AdaptiveMaxPool1d(3)", [X(3, 8)], "m(x1)"),
    ("nn.AdaptiveMaxPool2d((None, 2))", [X(2, 3, 3, 5)], "m(x1)"),
    ("nn.AdaptiveMaxPool3d(2)", [X(2, 3, 3, 5, 4)], "m(x1)"),
    ("nn.LPPool1d(3, 2, 1)", [P(2, 3, 6)], "m(p1)"),
    ("nn.LPPool2d(2, (2, 3), ceil_mode=True)", [P(2, 3, 5, 7)], "m(p1)"),
    ("nn.LPPool3d(1.5, 2)", [P(1, 2, 4, 4, 4)], "m(p1)"),
    ("nn.Fold((4, 5), (2, 3), dilation=(1, 2), padding=(1, 0), stride=(2, 1))", [X(2, 12, 3)],
     "m(x1)"),
    ("nn.Unfold((2, 3), (2, 1), (1, 2), (1, 2))", [X(2, 2, 5, 4)], "m(x1)"),
    # shapes
    ("nn.ZeroPad1d((1, 2))", [X(2, 3)], "m(x1)"),
    ("nn.ZeroPad2d((1, 0, 2, 3))", [X(1, 2, 3)], "m(x1)"),
    ("nn.ZeroPad3d((1, 0, 2, 3, 0, 1))", [X(1, 2, 2, 3)], "m(x1)"),
    ("nn.ConstantPad1d(2, 3.5)", [X(2, 3)], "m(x1)"),
    ("nn.ConstantPad2d((1, 0, 2, 1), -1.5)", [X(1, 2, 3)], "m(x1)"),
    ("nn.ConstantPad3d(1, 2)", [X(1, 2, 2, 3)], "m(x1)"),
    ("nn.ReflectionPad1d((2, 1))", [X(2, 4)], "m(x1)"),
    ("nn.ReflectionPad2d((1, 2, 0, 1))", [X(1, 2, 3, 4)], "m(x1)"),
    ("nn.ReflectionPad3d((1, 0, 2, 1, 0, 1))", [X(1, 2, 3, 2)], "m(x1)"),
    ("nn.ReplicationPad1d((2, 1))", [X(2, 4)], "m(x1)"),
    ("nn.ReplicationPad2d((1, 2, 0, 1))", [X(1, 2, 3, 4)], "m(x1)"),
    ("nn.ReplicationPad3d((1, 0, 2, 1, 0, 1))", [X(1, 2, 3, 2)], "m(x1)"),
    ("nn.CircularPad1d((2, 1))", [X(1, 2, 4)], "m(x1)"),
    ("nn.CircularPad2d((1, 2, 0, 1))", [X(1, 2, 3, 4)], "m(x1)"),
    ("nn.CircularPad3d((1, 0, 2, 1, 0, 1))", [X(1, 1, 2, 3, 2)], "m(x1)"),
    ("nn.Flatten()", [X(2, 3, 4)], "m(x1)"),
    ("nn.Flatten(0, 1)", [X(2, 3, 4)], "m(x1)"),
    ("nn.Unflatten(1, (2, 3))", [X(2, 6, 4)], "m(x1)"),
    ("nn.PixelShuffle(2)", [X(2, 8, 2, 3)], "m(x1)"),
    ("nn.PixelUnshuffle(2)", [X(2, 2, 4, 6)], "m(x1)"),
    ("nn.ChannelShuffle(3)", [X(2, 6, 2)], "m(x1)"),
    ("nn.Upsample(scale_factor=2)", [X(1, 2, 2, 3)], "m(x1)"),
    ("nn.Upsample((5, 4), mode='bilinear')", [X(1, 2, 2, 3)], "m(x1)"),
    ("nn.Upsample((5, 4), mode='bilinear', align_corners=True)", [X(1, 2, 2, 3)], "m(x1)"),
    ("nn.Upsample(scale_factor=1.7, mode='linear', recompute_scale_factor=True)", [X(1, 2, 7)],
     "m(x1)"),
    ("nn.Upsample(scale_factor=(1.5, 2), mode='bicubic')", [X(1, 2, 4, 3)], "m(x1)"),
    ("nn.UpsamplingNearest2d((3, 5))", [X(1, 2, 2, 3)], "m(x1)"),
    ("nn.UpsamplingBilinear2d(scale_factor=2)", [X(1, 2, 2, 3)], "m(x1)"),
    # activations
    ("nn.ELU(0.5)", [X(3, 4)], "m(x1)"), ("nn.CELU(0.5)", [X(3, 4)], "m(x1)"),
    ("nn.SELU()", [X(3, 4)], "m(x1)"), ("nn.GELU()", [X(3, 4)], "m(x1)"),
    ("nn.GELU('tanh')", [X(3, 4)], "m(x1)"), ("nn.GLU()", [X(3, 4)], "m(x1)"),
    ("nn.GLU(0)", [X(4, 3)], "m(x1)"), ("nn.Hardshrink(0.25)", [X(3, 4)], "m(x1)"),
    ("nn.Hardtanh(-0.5, 0.25)", [X(3, 4)], "m(x1)"), ("nn.Hardswish()", [X(3, 4)], "m(x1)"),
    ("nn.LeakyReLU(0.25)", [X(3, 4)], "m(x1)"), ("nn.LogSoftmax(0)", [X(3, 4)], "m(x1)"),
    ("nn.Softmax(-1)", [X(3, 4)], "m(x1)"), ("nn.Softmax2d()", [X(2, 3, 2, 2)], "m(x1)"),
    ("nn.Softmin(0)", [X(3, 4)], "m(x1)"), ("nn.Softplus(2, 1)", [X(3, 4)], "m(x1)"),
    ("nn.Softshrink(0.25)", [X(3, 4)], "m(x1)"), ("nn.Threshold(0.25, -2)", [X(3, 4)], "m(x1)"),
    ("nn.Mish()", [X(3, 4)], "m(x1)"), ("nn.Tanhshrink()", [X(3, 4)], "m(x1)"),
    ("nn.LogSigmoid()", [X(3, 4)], "m(x1)"),
    ("nn.SiLU()", [X(3, 4)], "m(x1)"), ("nn.ReLU6()", [X(3, 4)], "m(x1)"),
    ("nn.Softsign()", [X(3, 4)], "m(x1)"),
    # losses
    ("nn.CosineSimilarity(0, 0.5)", [X(3, 4), X(3, 4)], "m(x1, x2)"),
    ("nn.PairwiseDistance(3, 0.5, True)", [X(3, 4), X(3, 4)], "m(x1, x2)"),
    ("nn.L1Loss(reduction='sum')", [X(3, 4), X(3, 4)], "m(x1, x2)"),
    ("nn.MSELoss()", [X(3, 4), X(3, 4)], "m(x1, x2)"),
    ("nn.HuberLoss(reduction='none', delta=0.5)", [X(3, 4), X(3, 4)], "m(x1, x2)"),
    ("nn.SmoothL1Loss(beta=0.25)", [X(3, 4), X(3, 4)], "m(x1, x2)"),
    ("nn.KLDivLoss(reduction='batchmean')", [X(3, 4), P(3, 4)], "m(x1, p2)"),
    ("nn.KLDivLoss(reduction='sum', log_target=True)", [X(3, 4), X(3, 4)], "m(x1, x2)"),
    ("nn.CrossEntropyLoss(ignore_index=2, label_smoothing=0.25)", [X(5, 4), I(4, 5)], "m(x1, i2)"),
    ("nn.CrossEntropyLoss(weight=torch.tensor([0.5, 2.0, 1.5, 0.25]), reduction='sum')",
     [X(5, 4), I(4, 5)], "m(x1, i2)"),
    ("nn.CrossEntropyLoss(label_smoothing=0.5)", [X(5, 4), U(5, 4)], "m(x1, u2)"),
    ("nn.NLLLoss(weight=torch.tensor([0.5, 2.0, 1.5, 0.25]), ignore_index=1)",
     [X(5, 4, 2), I(4, 5, 2)], "m(x1, i2)"),
    ("nn.BCELoss(reduction='sum')", [U(3, 4), U(3, 4)], "m(u1, u2)"),
    ("nn.BCEWithLogitsLoss(pos_weight=torch.tensor([0.5, 2.0, 1.5, 0.25]))", [X(3, 4), U(3, 4)],
     "m(x1, u2)"),
    ("nn.PoissonNLLLoss(log_input=False, full=True, eps=0.25)", [P(3, 4), P(3, 4)], "m(p1, p2)"),
    ("nn.PoissonNLLLoss(reduction='none')", [X(3, 4), P(3, 4)], "m(x1, p2)"),
    ("nn.GaussianNLLLoss(full=True, eps=0.25)", [X(3, 4), X(3, 4), P(3, 4)], "m(x1, x2, p3)"),
    ("nn.GaussianNLLLoss(reduction='sum')", [X(3, 4), X(3, 4), P(3, 1)], "m(x1, x2, p3)"),
    ("nn.HingeEmbeddingLoss(0.5)", [X(3, 4), T(3, 4)], "m(x1, t2)"),
    ("nn.MarginRankingLoss(0.5, reduction='sum')", [X(6), X(6), T(6)], "m(x1, x2, t3)"),
    ("nn.CosineEmbeddingLoss(0.25)", [X(6, 3), X(6, 3), T(6)], "m(x1, x2, t3)"),
    ("nn.SoftMarginLoss(reduction='none')", [X(3, 4), T(3, 4)], "m(x1, t2)"),
    ("nn.TripletMarginLoss(0.5, 3, 0.25, True)", [X(6, 3), X(6, 3), X(6, 3)], "m(x1, x2, x3)"),
    ("nn.TripletMarginWithDistanceLoss(margin=2, swap=True, reduction='sum')",
     [X(6, 3), X(6, 3), X(6, 3)], "m(x1, x2, x3)"),
    ("nn.MultiMarginLoss(2, 0.5, torch.tensor([0.5, 2.0, 1.5]))", [X(6, 3), I(3, 6)], "m(x1, i2)"),
    ("nn.MultiLabelSoftMarginLoss(torch.tensor([0.5, 2.0, 1.5]))", [X(6, 3), U(6, 3)],
     "m(x1, u2)"),
]


DIMS.update({f"nn.{name}": ("dim",) for name in (
    "GLU", "LogSoftmax", "Softmax", "Softmin", "CosineSimilarity", "Unflatten")})
DIMS["nn.Flatten"] = ("dim", "end_dim")


def measured(make, inputs, call):
    net = eval(make)
    for k, p in enumerate(net.parameters()):
        p.data = sines("x", p.shape, 3 * k + 1) * 0.75
    given, leaves = {"m": net, "torch": torch}, []
    for k, (kind, shape, *n) in enumerate(inputs):
        if kind == "l":
            x = torch.tensor(shape)
        else:
            x = sines(kind, shape, 50 * k + 7, *n)
        leaf = kind in "xpu" and not (kind == "u" and k > 0)
        if leaf:
            x.requires_grad_()
            leaves.append(x)
        given[f"{kind}{k + 1}"] = x
    result = flat(tuple(eval(call, given)) if "AdaptiveLog" in make and "log_prob" not in call
                  else eval(call, given))
    loss = sum((y * torch.arange(1, y.numel() + 1).double().cos().view(y.shape)).sum()
               for y in result if y.requires_grad)
    if torch.is_tensor(loss) and loss.requires_grad:
        loss.backward()
    row = {"make": translate(make), "call": translate(call),
           "inputs": [[kind, list(shape), *n] for kind, shape, *n in inputs],
           "results": [shown(y) for y in result],
           "input_grads": [shown(torch.zeros(x.shape) if x.grad is None else x.grad)
                           for x in leaves],
           "grads": [[k, *shown(p.grad)] for k, p in net.named_parameters()],
           "state": [[k, *shown(v)] for k, v in net.state_dict().items()]}
    with torch.no_grad():
        again = [] if "AdaptiveLog" in make else flat(eval(call, {**given, "m": net.eval()}))
        row["evaluated"] = [weighed(y) for y in again]
    return row


def main():
    rows = ",\n".join(json.dumps(measured(*row)) for row in ROWS)
    print(f'{{"made": {{"torch": "{torch.__version__.split("+")[0]}"}},\n"cases": [\n{rows}]}}')


main()
