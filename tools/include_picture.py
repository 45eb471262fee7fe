# SPDX-License-Identifier: Apache-2.0
"""Draws a graph without cycles: rows of boxes, whoever includes above whom it includes.

An arrow that follows from two others is left out (client -> wire, since client -> rpc -> wire).
"""
from html import escape

BOX_WIDTH, BOX_HEIGHT, GAP_X, GAP_Y, MARGIN = 104, 30, 26, 56, 16


def reduced(nodes, edges):
    """The edges that do not follow from others."""
    after = {node: {to for source, to in edges if source == node} for node in nodes}

    def reaches(source, to, seen):
        return any(
            node == to or (node not in seen and not seen.add(node) and reaches(node, to, seen))
            for node in after.get(source, ())
        )

    return {
        (source, to)
        for source, to in edges
        if not any(other != to and reaches(other, to, {other}) for other in after[source])
    }


def rows(nodes, edges):
    """Nodes by the longest way down from them: those that include nothing are row 0."""
    height = {}

    def of(node, above=()):
        if node in above:
            raise SystemExit(f"a cycle: {' '.join(above)} {node}")
        if node not in height:
            height[node] = max((of(to, above + (node,)) + 1 for source, to in edges if source == node), default=0)
        return height[node]

    for node in sorted(nodes):
        of(node)
    found = [sorted(node for node in nodes if height[node] == row) for row in range(max(height.values()) + 1)]
    return found


def untangled(layers, edges):
    """The same rows, each node near those that it is joined to."""
    place = {node: at - len(layer) / 2 for layer in layers for at, node in enumerate(layer)}
    for _ in range(12):
        for layer in layers:
            def wish(node):
                joined = [place[b if a == node else a] for a, b in edges if node in (a, b)]
                return sum(joined) / len(joined) if joined else place[node]

            layer.sort(key=lambda node: (wish(node), node))
            for at, node in enumerate(layer):
                place[node] = at - (len(layer) - 1) / 2
    return layers


def dot(nodes, edges):
    lines = ["digraph includes {", "  node [shape=box];"]
    lines += [f'  "{node}";' for node in sorted(nodes)]
    lines += [f'  "{source}" -> "{to}";' for source, to in sorted(edges)]
    return "\n".join(lines + ["}"])


def svg(nodes, edges):
    edges = reduced(nodes, edges)
    layers = untangled(rows(nodes, edges), edges)
    step_x, step_y = BOX_WIDTH + GAP_X, BOX_HEIGHT + GAP_Y
    width = max(map(len, layers)) * step_x - GAP_X + 2 * MARGIN
    height = len(layers) * step_y - GAP_Y + 2 * MARGIN
    at = {}
    for row, layer in enumerate(layers):
        left = (width - len(layer) * step_x + GAP_X) / 2
        for column, node in enumerate(layer):
            at[node] = (left + column * step_x, height - MARGIN - BOX_HEIGHT - row * step_y)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}"'
        f' font-family="sans-serif" font-size="13" text-anchor="middle">',
        f'<rect width="{width:g}" height="{height:g}" fill="white"/>',
        '<marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0,0 L8,4 L0,8 z" fill="#555"/></marker>',
    ]
    for source, to in sorted(edges):
        x1, y1 = at[source][0] + BOX_WIDTH / 2, at[source][1] + BOX_HEIGHT
        x2, y2 = at[to][0] + BOX_WIDTH / 2, at[to][1]
        bend = (y2 - y1) / 2
        parts.append(
            f'<path d="M{x1:g},{y1:g} C{x1:g},{y1 + bend:g} {x2:g},{y2 - bend:g} {x2:g},{y2:g}"'
            ' fill="none" stroke="#555" marker-end="url(#tip)"/>'
        )
    for node, (x, y) in sorted(at.items()):
        parts.append(f'<rect x="{x:g}" y="{y:g}" width="{BOX_WIDTH}" height="{BOX_HEIGHT}" rx="4" fill="#eef3fa" stroke="#335"/>')
        parts.append(f'<text x="{x + BOX_WIDTH / 2:g}" y="{y + BOX_HEIGHT / 2 + 5:g}">{escape(node)}</text>')
    return "\n".join(parts + ["</svg>", ""])
