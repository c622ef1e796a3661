"""Writes audio.json: values of torchaudio's functions and transforms.

    python3 spec/golden/audio.py > spec/golden/audio.json      # needs torchaudio

Signals are ((3k^2 + 7k + 13c) mod 101 - 50) / 64 of sample k and channel c, both from 0; `shape` is
their shape, whose last dimension is time. A case has the transform or function, its arguments, the
shape of the result and every STRIDE-th of its elements. Complex results are pairs. The arguments of
a function are in its order.

Resample and griffinlim are computed in f64: torchaudio's f32 filters have phases that are rounded
to f32, and griffinlim's iterations amplify rounding errors.
"""

import json
import math
import sys

import torch
import torchaudio.functional as F
import torchaudio.transforms as T

CASES, WINDOWS = [], {"hann": torch.hann_window, "hamming": torch.hamming_window}


def signal(*shape):
    k = torch.arange(shape[-1], dtype=torch.int64)
    rows = [((3 * k * k + 7 * k + 13 * c) % 101 - 50) / 64
            for c in range(math.prod(shape[:-1]))]
    return torch.stack(rows).reshape(shape).float()


def put(entry, y):
    if y.is_complex():
        y = torch.view_as_real(y)
    flat = y.flatten()
    stride = max(1, -(-flat.numel() // 40))
    entry.update(size=list(y.shape), stride=stride,
                 values=[float(f"{v:.9g}") for v in flat[::stride].tolist()])
    CASES.append(entry)


def module(name, shape, **args):
    given = dict(args)
    if "window_fn" in given:
        given["window_fn"] = WINDOWS[given["window_fn"]]
    x = signal(*shape)
    if name == "Resample":
        given["dtype"], x = torch.float64, x.double()
    put({"module": name, "shape": list(shape), "args": args}, getattr(T, name)(**given)(x))


def function(name, *args, window=None, shape=None):
    """`shape` and `window` stand for the first argument and the window in args."""
    given = list(args)
    for i, a in enumerate(given):
        if a == "signal":
            given[i] = signal(*shape)
        elif isinstance(a, str) and a in WINDOWS:
            given[i] = WINDOWS[a](window)
    put({"function": name, "shape": shape, "window": window, "args": list(args)},
        getattr(F, name)(*given))


module("Spectrogram", (2, 1000))
module("Spectrogram", (1000,), n_fft=64, power=1.0)
module("Spectrogram", (1000,), n_fft=64, power=None)
module("Spectrogram", (2, 500), n_fft=50, win_length=40, hop_length=13, pad=7, power=3.0,
       normalized=True, window_fn="hamming")
module("Spectrogram", (500,), n_fft=64, normalized="frame_length", center=False, onesided=False)
for mode in ["constant", "replicate", "circular"]:
    module("Spectrogram", (1, 300), n_fft=64, pad_mode=mode)
module("MelSpectrogram", (2, 4000), n_mels=64)
module("MelSpectrogram", (2000,), sample_rate=8000, n_fft=256, hop_length=80, f_min=50.0,
       f_max=3800.0, n_mels=40, norm="slaney", mel_scale="slaney", power=1.0)
module("MFCC", (2, 4000), n_mfcc=13, melkwargs={"n_mels": 40})
module("MFCC", (2000,), sample_rate=8000, n_mfcc=20, log_mels=True,
       melkwargs={"n_fft": 256, "n_mels": 32, "mel_scale": "slaney"})
module("AmplitudeToDB", (1, 2, 30), stype="magnitude", top_db=30.0)
module("ComputeDeltas", (2, 3, 30))
module("ComputeDeltas", (3, 30), win_length=7, mode="reflect")
module("Resample", (2, 500), orig_freq=48000, new_freq=16000)
module("Resample", (500,), orig_freq=16000, new_freq=44100)
module("Resample", (500,), orig_freq=3, new_freq=2, resampling_method="sinc_interp_kaiser",
       lowpass_filter_width=16, rolloff=0.9, beta=12.0)
module("Resample", (500,), orig_freq=8000, new_freq=11025,
       resampling_method="sinc_interp_kaiser")
module("MuLawEncoding", (300,))
module("MuLawEncoding", (300,), quantization_channels=64)
module("Vol", (2, 100), gain=1.5)
module("Vol", (100,), gain=0.3, gain_type="power")
module("Vol", (100,), gain=-6.0, gain_type="db")
for fade in ["linear", "quarter_sine", "half_sine", "logarithmic", "exponential"]:
    module("Fade", (2, 100), fade_in_len=30, fade_out_len=17, fade_shape=fade)
function("melscale_fbanks", 201, 0.0, 8000.0, 40, 16000)
function("melscale_fbanks", 513, 20.0, 11025.0, 80, 22050, "slaney", "slaney")
function("linear_fbanks", 129, 100.0, 4000.0, 20, 8000)
function("create_dct", 13, 40, "ortho")
function("create_dct", 40, 128, None)
function("spectrogram", "signal", 0, "hann", 64, 16, 64, 2.0, False, shape=[300], window=64)
function("resample", "signal", 16000, 8000, shape=[2, 300])
function("amplitude_to_DB", "signal", 10.0, 1e-3, 0.5, 20.0, shape=[2, 3, 4, 9])
function("DB_to_amplitude", "signal", 2.0, 0.5, shape=[2, 9])
function("mu_law_decoding", "signal", 256, shape=[50])
function("gain", "signal", 3.0, shape=[20])
function("preemphasis", "signal", 0.97, shape=[2, 20])
function("spectral_centroid", "signal", 8000, 0, "hann", 64, 32, 64, shape=[300], window=64)
# the absolute values of a signal are a spectrogram
put({"function": "griffinlim", "shape": [21, 30], "window": 40, "absolute": True, "double": True,
     "args": ["signal", "hann", 40, 20, 40, 1.0, 8, 0.99, None, False]},
    F.griffinlim(signal(21, 30).double().abs(), torch.hann_window(40, dtype=torch.float64), 40, 20, 40, 1.0, 8, 0.99, None, False))
module("Spectrogram", (500,), n_fft=64, normalized="window", win_length=50)
module("Spectrogram", (500,), n_fft=63, pad=3, hop_length=11, power=0.5)
module("Spectrogram", (2, 3, 200), n_fft=32, center=False)
module("MelSpectrogram", (3000,))
module("MelSpectrogram", (2000,), sample_rate=8000, n_fft=200, f_max=3000.0, n_mels=20,
       mel_scale="slaney", pad=5, center=False)
module("MFCC", (3000,))
module("MFCC", (2000,), n_mfcc=10, norm=None, melkwargs={"n_fft": 256, "n_mels": 20})
module("AmplitudeToDB", (2, 30))
module("AmplitudeToDB", (3, 2, 5, 30), top_db=6.0)
module("AmplitudeToDB", (5, 30), stype="magnitude", top_db=3.0)
module("ComputeDeltas", (1, 1, 30), win_length=4)
module("ComputeDeltas", (2, 3, 30), win_length=3, mode="constant")
module("Resample", (100,), orig_freq=4, new_freq=6)
module("Resample", (1, 2, 100), orig_freq=6, new_freq=4, lowpass_filter_width=1, rolloff=0.5)
module("Fade", (2, 40))
module("Fade", (2, 40), fade_in_len=40, fade_out_len=40)
module("Fade", (40,), fade_in_len=1, fade_out_len=1, fade_shape="exponential")
module("Vol", (100,), gain=0.0)
module("MuLawEncoding", (60,), quantization_channels=2)
function("melscale_fbanks", 65, 0.0, 4000.0, 10, 8000, None, "slaney")
function("melscale_fbanks", 65, 300.0, 3000.0, 10, 8000, "slaney", "htk")
function("linear_fbanks", 33, 0.0, 4000.0, 1, 8000)
function("create_dct", 1, 1, "ortho")
function("create_dct", 5, 5, None)
function("spectrogram", "signal", 5, "hann", 64, 16, 48, 1.0, "window", shape=[300], window=48)
function("spectrogram", "signal", 0, "hann", 64, 16, 64, None, "frame_length", False, "constant",
         False, shape=[300], window=64)
function("resample", "signal", 7, 5, 3, 0.8, shape=[2, 90])
function("amplitude_to_DB", "signal", 20.0, 1e-2, 0.0, None, shape=[2, 9])
function("amplitude_to_DB", "signal", 10.0, 1e-3, 0.5, 5.0, shape=[4, 9])
function("amplitude_to_DB", "signal", 10.0, 1e-3, 0.5, 5.0, shape=[2, 1, 4, 9])
function("mu_law_encoding", "signal", 16, shape=[50])
function("gain", "signal", 0.0, shape=[20])
function("gain", "signal", shape=[20])
function("preemphasis", "signal", shape=[2, 20])
function("preemphasis", "signal", 0.5, shape=[3, 1])
function("compute_deltas", "signal", 9, "circular", shape=[2, 30])
function("spectral_centroid", "signal", 11025, 3, "hamming", 50, 20, 30, shape=[2, 300], window=30)
for momentum, length in [(0.0, None), (0.5, 580)]:
    put({"function": "griffinlim", "shape": [21, 30], "window": 40, "absolute": True,
         "double": True, "args": ["signal", "hann", 40, 20, 40, 2.0, 3, momentum, length, False]},
        F.griffinlim(signal(21, 30).double().abs(), torch.hann_window(40, dtype=torch.float64), 40,
                     20, 40, 2.0, 3, momentum, length, False))
# each option with another value than its default
for normalized in [True, "window", "frame_length"]:
    module("Spectrogram", (300,), n_fft=50, win_length=31, normalized=normalized, power=1.0)
module("Spectrogram", (300,), n_fft=51, win_length=20)
module("Spectrogram", (300,), n_fft=33, hop_length=5, pad=3, pad_mode="constant", power=0.5)
module("MelSpectrogram", (1500,), n_fft=128, win_length=100, hop_length=33, f_min=100.0, pad=5,
       n_mels=12, window_fn="hamming", power=3.0, normalized=True, center=False)
module("MelSpectrogram", (1500,), sample_rate=11025, n_fft=129, n_mels=9, pad_mode="replicate",
       norm="slaney")
module("MelScale", (2, 201, 9), n_mels=20)
module("MelScale", (65, 4), n_mels=10, sample_rate=11025, f_min=300.0, f_max=5000.0, n_stft=65,
       norm="slaney", mel_scale="slaney")
module("MFCC", (2000,), n_mfcc=7, norm=None, melkwargs={"n_mels": 7, "n_fft": 200})
module("MFCC", (2000,), n_mfcc=5, norm=None, log_mels=True, melkwargs={"n_mels": 23})
for stype in ["power", "magnitude"]:
    for top_db in [None, 10.0]:
        module("AmplitudeToDB", (2, 5, 9), stype=stype, top_db=top_db)
module("AmplitudeToDB", (5, 9), top_db=3.0)
module("AmplitudeToDB", (2, 2, 5, 9), top_db=1.0)
for mode in ["replicate", "reflect", "constant", "circular"]:
    for width in [3, 4, 9]:
        module("ComputeDeltas", (2, 20), win_length=width, mode=mode)
module("ComputeDeltas", (2, 2, 2, 11))
module("Resample", (100,), orig_freq=12, new_freq=8, lowpass_filter_width=1)
module("Resample", (2, 1, 60), orig_freq=1, new_freq=2, rolloff=0.5)
module("Resample", (61,), orig_freq=5, new_freq=4, resampling_method="sinc_interp_kaiser")
module("Resample", (61,), orig_freq=5, new_freq=5)
for channels in [2, 3, 1024]:
    module("MuLawEncoding", (100,), quantization_channels=channels)
    module("MuLawDecoding", (50,), quantization_channels=channels)
module("Vol", (100,), gain=3.0, gain_type="power")
module("Vol", (100,), gain=6.0, gain_type="db")
module("Vol", (100,), gain=0.0, gain_type="amplitude")
module("Fade", (2, 50))
module("Fade", (50,), fade_in_len=50, fade_out_len=50)
module("Fade", (50,), fade_in_len=1, fade_out_len=2)
module("Fade", (50,), fade_out_len=20, fade_shape="exponential")
function("melscale_fbanks", 65, 0.0, 4000.0, 1, 8000)
function("melscale_fbanks", 65, 1200.0, 4000.0, 5, 8000, None, "slaney")
function("melscale_fbanks", 65, 100.0, 900.0, 5, 8000, None, "slaney")
function("melscale_fbanks", 65, 100.0, 3000.0, 7, 8001, "slaney", "htk")
function("linear_fbanks", 33, 0.0, 4000.0, 1, 8001)
function("create_dct", 1, 1, "ortho")
function("create_dct", 3, 4, None)
function("create_dct", 4, 4, "ortho")
function("amplitude_to_DB", "signal", 20.0, 0.1, 2.0, None, shape=[3, 9])
function("amplitude_to_DB", "signal", 20.0, 0.1, -1.0, 2.0, shape=[2, 3, 9])
function("DB_to_amplitude", "signal", 0.5, 1.0, shape=[9])
for width in [3, 5]:
    function("compute_deltas", "signal", width, shape=[3, 9])
function("mu_law_encoding", "signal", 16, shape=[50])
function("gain", "signal", 0.0, shape=[20])
function("gain", "signal", -6.0, shape=[2, 20])
function("gain", "signal", shape=[20])
function("preemphasis", "signal", shape=[20])
function("preemphasis", "signal", -0.5, shape=[2, 2, 5])
function("preemphasis", "signal", 0.97, shape=[3, 1])
function("spectral_centroid", "signal", 8001, 5, "hamming", 51, 20, 40, shape=[2, 300], window=40)
function("spectrogram", "signal", 4, "hamming", 50, 16, 40, 1.0, "window", False, "reflect",
         False, shape=[300], window=40)
for args in [[40, 20, 40, 1.0, 3, 0.0, None], [40, 20, 40, 2.0, 2, 0.5, 590],
             [40, 10, 30, 2.0, 0, 0.99, None]]:
    window = args[2]
    put({"function": "griffinlim", "shape": [21, 30], "window": window, "absolute": True,
         "double": True, "args": ["signal", "hann", *args, False]},
        F.griffinlim(signal(21, 30).double().abs(),
                     torch.hann_window(window, dtype=torch.float64), *args, False))
for args in [[None, 0, 40, 10, 40, False], [150, 0, 40, 10, 40, True],
             [150, 7, 40, 10, 32, "window"],
             [100, 0, 41, 10, 41, "frame_length"], [None, 3, 40, 20, 40, "frame_length"]]:
    bins = args[2] // 2 + 1
    put({"function": "inverse_spectrogram", "shape": [2, bins, 20, 2], "window": args[4],
         "args": ["signal", args[0], args[1], "hann", *args[2:]]},
        F.inverse_spectrogram(torch.view_as_complex(signal(2, bins, 20, 2)), args[0], args[1],
                              torch.hann_window(args[4]), *args[2:]))
for lengths in [None, [12, 20]]:
    counted = None if lengths is None else torch.tensor(lengths)
    put({"function": "add_noise", "shape": [2, 20], "noise": True, "args": ["signal", [3.0, -6.0],
         lengths]}, F.add_noise(signal(2, 20), signal(2, 20).flip(-1) * 2,
                                torch.tensor([3.0, -6.0]), counted))
sys.stdout.write("[\n" + ",\n".join(json.dumps(c, separators=(",", ":")) for c in CASES) + "\n]\n")
