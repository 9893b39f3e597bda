"""A real S3 server on loopback, in a process of its own: who writes to it must not wait for its Python."""

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO


def free_port() -> int:
    """Return a port of loopback that nobody listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    """Wait until a process that was started listens on a port."""
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline:
        assert process.poll() is None, "it ended at once"
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=1):
                return
        except OSError:
            time.sleep(0.1)
    raise AssertionError(f"nobody listens on port {port}")


@contextmanager
def s3_server(bucket: str = "bias", log: int | IO[str] = subprocess.DEVNULL) -> Iterator[dict[str, str]]:
    """Start an S3 server with one bucket, which notes requests in a log; yield the environment that points to it."""
    import boto3

    port = free_port()
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=log)
    try:
        wait_for(port, server)
        variables = {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}", "AWS_ACCESS_KEY_ID": "key",
            "AWS_SECRET_ACCESS_KEY": "secret", "AWS_DEFAULT_REGION": "us-east-1", "NO_PROXY": "127.0.0.1",
            "no_proxy": "127.0.0.1",
        }  # fmt: skip
        client = boto3.client(
            "s3", endpoint_url=variables["AWS_ENDPOINT_URL"], aws_access_key_id="key",
            aws_secret_access_key="secret", region_name="us-east-1",
        )  # fmt: skip
        client.create_bucket(Bucket=bucket)
        yield variables
    finally:
        server.terminate()
        server.wait(timeout=30)
