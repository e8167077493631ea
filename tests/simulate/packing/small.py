"""Small clusters and lists of pods, as files and as what is read from them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
from hypothesis import strategies as st

from shoal.simulate.packing.nodes import Nodes, read_nodes
from shoal.simulate.packing.pods import Pods, read_pods
from shoal.simulate.packing.states import Request, States

NODE_HEAD = "sn,cpu_milli,memory_mib,gpu,model"
POD_HEAD = "name,cpu_milli,memory_mib,num_gpu,gpu_milli"


def write_nodes(path: Path, rows: Iterable[str]) -> Path:
    """Rows without the name, which is the row's number."""
    lines = [NODE_HEAD, *(f"node-{number},{row}" for number, row in enumerate(rows))]
    path.write_text("\n".join(lines) + "\n")
    return path


def write_pods(path: Path, rows: Iterable[str], head: str = POD_HEAD) -> Path:
    lines = [head, *(f"pod-{number},{row}" for number, row in enumerate(rows))]
    path.write_text("\n".join(lines) + "\n")
    return path


def nodes_of(folder: Path, *rows: str) -> Nodes:
    return read_nodes(write_nodes(folder / "nodes.csv", rows))


def pods_of(folder: Path, *rows: str, head: str = POD_HEAD) -> Pods:
    return read_pods(write_pods(folder / "pods.csv", rows, head))


def request(
    cpu: int, memory: int, gpus: int, milli: int, allowed: tuple[bool, ...] = (True,)
) -> Request:
    return Request(cpu, memory, gpus, milli, np.array(allowed))


def state(cpu: int, memory: int, *gpus: int, kind: int = 0) -> States:
    """One state; its GPUs ascending."""
    return States(np.array([kind]), np.array([cpu]), np.array([memory]), np.array([sorted(gpus)]))


@st.composite
def requests(draw: st.DrawFn) -> Request:
    """Of any kind that a list may hold, small enough to fit often."""
    gpus, milli = draw(
        st.one_of(
            st.just((0, 0)),
            st.tuples(st.just(1), st.sampled_from([110, 470, 500, 810])),
            st.tuples(st.integers(1, 4), st.just(1000)),
        )
    )
    return request(draw(st.integers(0, 9000)), draw(st.integers(0, 9000)), gpus, milli)


@st.composite
def node_states(draw: st.DrawFn, most: int = 5) -> States:
    """Some states of nodes with four GPUs."""
    count = draw(st.integers(1, most))
    amounts = st.lists(st.integers(0, 16000), min_size=count, max_size=count)
    free = st.sampled_from([0, 190, 500, 530, 1000])
    gpus = [sorted(draw(st.lists(free, min_size=4, max_size=4))) for _ in range(count)]
    kind = np.zeros(count, dtype=np.int64)
    return States(kind, np.array(draw(amounts)), np.array(draw(amounts)), np.array(gpus))
