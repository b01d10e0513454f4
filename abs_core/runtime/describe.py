"""A graph as people see it: the plan as text, and as a picture."""

from __future__ import annotations

from abs_core.runtime.graph import Edge, Graph


def describe(graph: Graph) -> str:
    """The plan as text: one line for each operator, with its inputs and how they are partitioned."""
    lines = [f"job {graph.name}, {graph.max_parallelism} key groups"]
    for node in graph.nodes.values():
        lines.append(f"  {node.id} [{node.kind} x{node.parallelism}]")
        lines += [f"    <- {edge.sender} {_way(edge)}" for edge in node.inputs]
    return "\n".join(lines)


def mermaid(graph: Graph) -> str:
    """The plan as a Mermaid flowchart, which Markdown viewers draw; back-edges are dotted."""
    numbers = {id_: f"n{number}" for number, id_ in enumerate(graph.nodes)}
    lines = ["flowchart LR"]
    lines += [
        f'  {numbers[node.id]}["{node.id}<br/>{node.kind} x{node.parallelism}"]'
        for node in graph.nodes.values()
    ]
    for node in graph.nodes.values():
        for edge in node.inputs:
            arrow = "-.->" if edge.back else "-->"
            ends = numbers[edge.sender], numbers[node.id]
            lines.append(f'  {ends[0]} {arrow}|"{edge.partition}"| {ends[1]}')
    return "\n".join(lines)


def _way(edge: Edge) -> str:
    return f"{edge.partition}{' (back-edge)' if edge.back else ''}"
