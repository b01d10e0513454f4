"""Describes a graph for people: as text, and as a picture."""

from __future__ import annotations

from abs_embedded.graph import Graph


def describe(graph: Graph) -> str:
    """The plan as text: one line for each operator, with its inputs and how they are partitioned."""
    lines = [f"job {graph.name}, {graph.max_parallelism} key groups"]
    for node in graph.nodes.values():
        lines.append(f"  {node.id} [{node.kind} x{node.parallelism}]")
        for edge in node.inputs:
            back = " (back-edge)" if edge.back else ""
            lines.append(f"    <- {edge.sender} {edge.partition}{back}")
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
            sender, receiver = numbers[edge.sender], numbers[node.id]
            lines.append(f'  {sender} {arrow}|"{edge.partition}"| {receiver}')
    return "\n".join(lines)
