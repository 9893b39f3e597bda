"""Where a run's Ray is, and whether a Ray answers there: its head is asked, and nothing is started."""

import os
import sys
import time
from dataclasses import dataclass

from biaseval.errors import InputError

LOCAL = "local"
"""No cluster: a run starts a Ray of its own."""

_AUTO, _CLIENT = "auto", "ray://"

_PATIENCE_S = 5.0
"""For a head that is far or busy, or that was started together with the run and does not listen yet."""


@dataclass(frozen=True)
class Unusable:
    """Why a run cannot use the Ray that it is told of."""

    found: str
    remedy: str


def ray_address() -> str:
    """Return the address of Ray from ``RAY_ADDRESS``, or the word for starting a local Ray."""
    return os.environ.get("RAY_ADDRESS") or LOCAL


def unusable(address: str) -> Unusable | None:
    """Return the problem of an address of Ray; None if a Ray answers there or the run starts a local Ray.

    An address is ``HOST:PORT`` of the head, ``ray://HOST:PORT``, ``auto`` or ``local``.
    """
    if address == LOCAL:
        return None
    if address.startswith(("http://", "https://")):
        remedy = "set it to HOST:6379 or ray://HOST:10001 for biaseval, or unset it and use ray job submit --address"
        return Unusable(f"RAY_ADDRESS={address} is the address of the dashboard, which takes jobs alone", remedy)
    place = address
    if address == _AUTO:
        from ray._private.services import get_ray_address_from_environment

        try:  # what Ray itself would take: the head that was started last on this machine
            place = get_ray_address_from_environment(_AUTO, None)
        except ConnectionError:
            remedy = "start one (ray start --head), or unset RAY_ADDRESS: a run then starts its own"
            return Unusable("RAY_ADDRESS is auto, and none is started here", remedy)
    host, _, port = place.removeprefix(_CLIENT).rpartition(":")
    why = _silence(place) if host and port.isdigit() else "it is not HOST:PORT"
    if why is None:
        return None
    remedy = "start that cluster, mend RAY_ADDRESS, or unset it: a run then starts a Ray of its own"
    return Unusable(f"no Ray answers at {place} ({why})", remedy)


def refuse_unusable_address() -> None:
    """Make sure that the Ray that ``RAY_ADDRESS`` names is there, where this process has none yet; takes seconds.

    Raises:
        InputError: it is not.
    """
    ray = sys.modules.get("ray")
    if ray is not None and ray.is_initialized():
        return
    if (problem := unusable(ray_address())) is not None:
        raise InputError(f"{problem.found}; {problem.remedy}")


def _silence(place: str) -> str | None:
    """Return why no head of Ray answers at a place; None: one does."""
    import grpc
    from ray._private.gcs_utils import create_gcs_channel
    from ray.core.generated import gcs_service_pb2_grpc
    from ray.core.generated.gcs_service_pb2 import CheckAliveRequest  # type: ignore[attr-defined]

    # A server for clients knows no such question, and a head that wants a token does not answer it: both are Ray's.
    answers = {grpc.StatusCode.UNAUTHENTICATED}
    if place.startswith(_CLIENT):
        answers.add(grpc.StatusCode.UNIMPLEMENTED)
    until = time.monotonic() + _PATIENCE_S
    while True:
        channel = create_gcs_channel(place.removeprefix(_CLIENT))
        try:
            stub = gcs_service_pb2_grpc.NodeInfoGcsServiceStub(channel)
            stub.CheckAlive(CheckAliveRequest(), timeout=_PATIENCE_S)
        except grpc.RpcError as error:
            if error.code() in answers:
                return None
            if error.code() != grpc.StatusCode.UNAVAILABLE or time.monotonic() > until:
                return _reason(str(error.details()))
        else:
            return None
        finally:
            channel.close()
        time.sleep(0.2)


def _reason(details: str) -> str:
    """Return what gRPC says, in few words."""
    if "HTTP/2" in details or "Method not found" in details:
        return "something else listens there"
    return details.rpartition(": ")[2].strip(" ]")
