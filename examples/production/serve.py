"""A service that scales and shifts rows, with a health check that asks this very process.

curl -d '[1, 2, 3]' http://127.0.0.1:8000/    # [2.5, 4.5, 6.5]
curl http://127.0.0.1:8000/health             # {"cpu": "loaded"}, or status 503
"""

from __future__ import annotations

import argparse
import json
import logging
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import torch

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")

import muladd  # noqa: E402  # after the handlers are there: the import says what became of each backend


class Handler(BaseHTTPRequestHandler):
    """POST / with a JSON list of numbers computes, GET /health says how the backends are."""

    def do_POST(self) -> None:
        """Answer x * 2 + 0.5, or 400 for what is no list of numbers."""
        try:
            row = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))))
            x = torch.tensor(row, dtype=torch.float32)
        except (ValueError, TypeError, RuntimeError) as error:
            return self._answer(400, {"error": str(error)})
        return self._answer(200, muladd.muladd(x, torch.tensor(2.0), 0.5).tolist())

    def do_GET(self) -> None:
        """Answer 200 where a kernel runs and is right, else 503."""
        if self.path != "/health":
            return self._answer(404, {"error": "there are POST / and GET /health"})
        one = torch.ones(1)
        try:
            is_right = muladd.muladd(one, one, 1.0).item() == 2.0
        except Exception as error:  # whatever it is, the answer is the same
            return self._answer(503, {"error": str(error)})
        states = {name: str(status.state) for name, status in muladd.backends().items()}
        return self._answer(200 if is_right else 503, states)

    def _answer(self, status: int, value: object) -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--port", type=int, default=8000)
    server = ThreadingHTTPServer(("0.0.0.0", parser.parse_args().port), Handler)  # noqa: S104  # of a container
    logging.getLogger("serve").info("listening on port %d", server.server_port)
    server.serve_forever()
