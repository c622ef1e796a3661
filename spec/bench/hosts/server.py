#!/usr/bin/env python3
"""PyTorch's side of nginx.lua: one worker, the same network behind aiohttp. Workers share the port.

    python server.py PORT BATCH WAIT WEIGHTS

BATCH requests share a forward; the first waits WAIT seconds. BATCH = 1: no batches.
"""

import asyncio
import sys

import torch
from aiohttp import web
from torch import nn

try:
    import uvloop
except ImportError:
    uvloop = None

PORT, BATCH = int(sys.argv[1]), int(sys.argv[2])
WAIT, WEIGHTS = float(sys.argv[3]), sys.argv[4]


def load(path):
    """The float32 weights, in the order of the parameters."""
    net = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(),
                        nn.Linear(256, 10))
    with open(path, "rb") as file:
        vector = torch.frombuffer(bytearray(file.read()), dtype=torch.float32)
    nn.utils.vector_to_parameters(vector, net.parameters())
    return net.eval()


class Server:
    """One process: requests wait in a queue until a batch is full or its time is over."""

    def __init__(self):
        self.net = load(WEIGHTS)
        self.waiting = []

    def forward(self, data):
        with torch.inference_mode():
            rows = torch.frombuffer(data, dtype=torch.float32).view(-1, 64)
            return self.net(rows).softmax(1).numpy().tobytes()

    def flush(self):
        batch, self.waiting = self.waiting, []
        if not batch:
            return
        output = self.forward(bytearray(b"".join(data for data, _ in batch)))
        start = 0
        for data, future in batch:
            size = len(data) // 64 * 10
            if not future.done():
                future.set_result(output[start:start + size])
            start += size

    async def predict(self, request):
        data = await request.read()
        if len(data) == 0 or len(data) % 256:
            raise web.HTTPBadRequest(text="rows have 64 float32")
        if BATCH == 1:
            output = self.forward(bytearray(data))
        else:
            loop = asyncio.get_running_loop()
            future = loop.create_future()
            self.waiting.append((data, future))
            if len(self.waiting) == BATCH:
                self.flush()
            elif len(self.waiting) == 1:
                loop.call_later(WAIT, self.flush)
            output = await future
        return web.Response(body=output, content_type="application/octet-stream")


def main():
    torch.set_num_threads(1)
    app = web.Application()
    app.router.add_post("/predict", Server().predict)
    if uvloop:
        asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())
    web.run_app(app, host="127.0.0.1", port=PORT, reuse_port=True, print=None, access_log=None,
                shutdown_timeout=1)


if __name__ == "__main__":
    main()
