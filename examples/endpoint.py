"""A model behind an API: paid by the row, asked once

The example serves the sentiment classifier itself, on 127.0.0.1, under the Open Inference Protocol that Triton, KServe
and MLServer speak. The ledger keeps every answer: the second explanation, with a larger budget, pays only for rows
that are new.

Needs: pip install 'c2fa[http,plots]'
"""

import json
import sys
import tempfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import c2fa

REVIEW = (
    "The tent went up in ten minutes. It rained all night, and by morning our bags were soaked. "
    "The poles are light and the colour is nice. I am taking it back."
)
served = c2fa.models.DemoSentiment()


class Server(BaseHTTPRequestHandler):
    """One text classifier under /v2/models/sentiment."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.reply({"name": "example", "inputs": [{"name": "text", "datatype": "BYTES", "shape": [-1]}]})

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        found = served(body["inputs"][0]["data"])
        output = {
            "name": "probabilities",
            "datatype": "FP64",
            "shape": list(found.shape),
            "data": found.ravel().tolist(),
        }
        self.reply({"model_name": "sentiment", "outputs": [output]})

    def reply(self, value):
        data = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass


def main(folder: Path) -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Server)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    model = c2fa.models.OpenInference(
        f"http://127.0.0.1:{server.server_port}",
        "sentiment",
        output_names=("negative", "positive"),
        price_per_row=0.0001,
        rows_per_request=32,
    )
    with tempfile.TemporaryDirectory() as place:
        ledger = c2fa.Ledger(Path(place) / "answers.sqlite")
        for budget in ((16, 84), (16, 184)):
            explainer = c2fa.Explainer(
                model, c2fa.maskers.Text(), budget=budget, ledger=ledger, model_name="sentiment", batch_size=128
            )
            explanation = explainer(REVIEW)
            d = explanation.diagnostics
            print(f"budget {sum(budget)}: {d.sent} rows sent, {d.recalled} recalled, cost {d.cost:.4f}")
        ledger.close()
    model.close()
    server.shutdown()
    server.server_close()
    print(explanation.to_text(leaves=3))
    explanation.plot("nested", leaves=2).savefig(folder / "endpoint.png", dpi=110)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "."))
