# SPDX-License-Identifier: Apache-2.0
"""What a description asks for that only the CuTe template of graphs without products writes."""

from pipegen.description import KernelDescription
from pipegen.planning.custom.graph import Graph


def asked_beyond(description: KernelDescription, graph: Graph) -> dict[str, object]:
    """The keys, with their values, of orders, clusters and rings that need them."""
    asked: dict[str, object] = {}
    if graph.clustered:
        asked["cluster.shape"] = list(graph.cluster)
    for name, ring in description.pipeline.items():
        for key in ("credits", "multicast", "peer"):
            if getattr(ring, key):
                asked[f"pipeline.{name}.{key}"] = getattr(ring, key)
    for order in graph.orders:
        asked[f"order.{order.name}.roles"] = ", ".join(order.roles)
    for name, role in description.role.items():
        if role.turn is not None:
            asked[f"role.{name}.turn"] = role.turn
    return asked
