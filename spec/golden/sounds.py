"""Writes sounds.json: small files of sounds that libsndfile wrote, in hexadecimal, and their values.

    python3 spec/golden/sounds.py > spec/golden/sounds.json      # needs soundfile

Each has 5 frames of 2 channels. `values` are those that libsndfile reads as f32, by channel.
"""

import io
import json
import sys

import numpy
import soundfile

x = numpy.array([[0.0, -1.0], [0.5, 0.25], [-0.123456789, 0.987654321], [1.0, -0.5], [0.1, 0.2]])
files = []
for container, subtypes in [
        ("WAV", ["PCM_U8", "PCM_16", "PCM_24", "PCM_32", "FLOAT", "DOUBLE", "ULAW", "ALAW"]),
        ("WAVEX", ["PCM_16", "PCM_24", "FLOAT"]), ("FLAC", ["PCM_16", "PCM_24"]),
        ("AIFF", ["PCM_16"]), ("AU", ["FLOAT"])]:
    for subtype in subtypes:
        out = io.BytesIO()
        soundfile.write(out, x, 8000, subtype=subtype, format=container)
        out.seek(0)
        values, rate = soundfile.read(out, dtype="float32", always_2d=True)
        files.append({"format": container, "subtype": subtype, "rate": rate,
                      "hex": out.getvalue().hex(),
                      "values": [[float(f"{v:.9g}") for v in row] for row in values.T.tolist()]})
sys.stdout.write("[\n" + ",\n".join(json.dumps(f, separators=(",", ":")) for f in files) + "\n]\n")
