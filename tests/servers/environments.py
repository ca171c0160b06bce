"""Virtual environments for servers whose pins conflict with ours, and processes that end by their own id."""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2] / ".servers"


class CannotInstall(RuntimeError):
    """The packages could not be had; a test that needs them is skipped with this reason."""


def environment(name: str, *requirements: str) -> Path:
    """Return the python of an environment with these packages, made now or kept from an earlier run."""
    wanted = "\n".join((sys.version, *requirements))
    folder = ROOT / f"{name}-{hashlib.sha256(wanted.encode()).hexdigest()[:10]}"
    python, ready = folder / "bin" / "python", folder / ".ready"
    if not ready.exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        done = subprocess.run([*pip, *requirements], capture_output=True, text=True, check=False, timeout=900)
        if done.returncode:
            said = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
            raise CannotInstall(f"pip cannot install {' '.join(requirements)}: {' '.join(said)[-500:]}")
        ready.touch()
    return python


def free_ports(count: int) -> list[int]:
    """Return ports of this machine that nobody uses."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for s in sockets:
            s.bind(("127.0.0.1", 0))
        return [s.getsockname()[1] for s in sockets]
    finally:
        for s in sockets:
            s.close()


class Process:
    """A server in a process of its own: started, waited for, killed and started again."""

    def __init__(self, command: list[str], port: int, ready: str, log: Path, **environ: str) -> None:
        self.command, self.port, self.ready, self.log = command, port, ready, log
        self.environ = {**os.environ, **environ}
        self.url = f"http://127.0.0.1:{port}"
        self.launch()

    def start(self) -> None:
        """Start and wait until it answers."""
        self.launch()
        self.wait()

    def launch(self) -> None:
        """Start without waiting."""
        with self.log.open("ab") as log:
            # A session of its own, so that the workers which a server starts end with it.
            self.process = subprocess.Popen(
                self.command, stdout=log, stderr=log, env=self.environ, start_new_session=True
            )

    def wait(self) -> None:
        """Wait until it answers."""
        end = time.monotonic() + 180
        while not self._answers():
            if self.process.poll() is not None or time.monotonic() > end:
                self.kill()
                raise RuntimeError(f"the server did not start: {self.log.read_text()[-3000:]}")
            time.sleep(0.1)

    def _answers(self) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=2)
        try:
            connection.request("GET", self.ready)
            return connection.getresponse().status == 200
        except OSError:
            return False
        finally:
            connection.close()

    def kill(self) -> None:
        """End the process and the workers that it started, at once."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def __enter__(self) -> Any:
        self.wait()
        return self

    def __exit__(self, *error: Any) -> None:
        self.kill()
