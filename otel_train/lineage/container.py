"""Finds out whether this process runs in a container, in which kind, and from which image where that can be known."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any, Final

# Inside a container nothing tells its image, unless somebody hands it in.
_IMAGE_VARIABLES: Final = (
    "OTEL_TRAIN_CONTAINER_IMAGE",
    "CONTAINER_IMAGE",
    "CONTAINER_IMAGE_NAME",
    "DOCKER_IMAGE",
    "SLURM_CONTAINER_IMAGE",
    "APPTAINER_CONTAINER",
    "SINGULARITY_CONTAINER",
    "ENROOT_IMAGE",
)
_ID: Final = re.compile(r"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])")
_PODMAN: Final = re.compile(r'^(engine|name|id|image|imageid)="?([^"\n]*)"?$', re.MULTILINE)


def describe_container(environ: Mapping[str, str], root: str = "/") -> dict[str, Any]:
    """Return kind, id, image and namespace as far as known; `{}` outside a container."""
    found: dict[str, Any] = {}
    podman = _read(root, "run/.containerenv")
    if podman is not None:
        facts = dict(_PODMAN.findall(podman))
        found["kind"] = "podman"
        found |= {
            name: facts[key]
            for name, key in (("id", "id"), ("image", "image"), ("image_id", "imageid"))
            if facts.get(key)
        }
    elif os.path.exists(os.path.join(root, ".dockerenv")):
        found["kind"] = "docker"
    elif environ.get("APPTAINER_CONTAINER") or environ.get("SINGULARITY_CONTAINER"):
        found["kind"] = "apptainer"
    identity = _container_id(root)
    if identity:
        found.setdefault("kind", "container")
        found.setdefault("id", identity)
    if environ.get("KUBERNETES_SERVICE_HOST"):
        found["kind"] = "kubernetes"
        namespace = _read(root, "var/run/secrets/kubernetes.io/serviceaccount/namespace")
        if namespace and namespace.strip():
            found["namespace"] = namespace.strip()
    image = next((environ[name] for name in _IMAGE_VARIABLES if environ.get(name)), None)
    if image:
        found.setdefault("kind", "container")
        found["image"] = image
    return found


def _container_id(root: str) -> str | None:
    # cgroup v1 names the container in the path; v2 shows "/" from inside, but the mounts of its host files do.
    for name, marks in (
        ("proc/self/cgroup", ("docker", "kubepods", "libpod", "containerd", "crio", "lxc")),
        ("proc/self/mountinfo", ("/containers/", "/containerd/", "/sandboxes/")),
    ):
        for line in (_read(root, name) or "").splitlines():
            if any(mark in line for mark in marks) and (
                "cgroup" in name or "/etc/host" in line or "resolv.conf" in line
            ):
                match = _ID.search(line)
                if match:
                    return match[0]
    return None


def _read(root: str, name: str) -> str | None:
    try:
        with open(os.path.join(root, name), encoding="utf-8", errors="replace") as file:
            return file.read(1 << 20)
    except OSError:
        return None
