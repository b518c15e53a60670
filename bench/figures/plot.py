"""Line charts as SVG, without a library: what the figures need and no more."""

from xml.sax.saxutils import escape

WIDTH, HEIGHT = 640, 400
LEFT, RIGHT, TOP, BOTTOM = 70, 170, 40, 55
COLOURS = ["#1b6ca8", "#c0392b", "#2e8b57", "#8e44ad", "#b8860b", "#444444"]


def lines(path, title, x_label, y_label, series, log_x=False, y_max=None, y_min=None, dots=()):
    """Writes `series` ([(name, [(x, y), ...]), ...]) to `path`. With `y_min` the ordinate is logarithmic and begins
    there. `dots` names series that are drawn as points alone, in the colour of the one before."""
    from math import log10

    if y_min:
        series = [(name, [(x, y) for x, y in points if y >= y_min]) for name, points in series]
    xs = [x for _, points in series for x, _ in points]
    ys = [y for _, points in series for _, y in points]
    low_x, high_x = min(xs), max(xs)
    high_y = y_max or max(ys) * 1.05 or 1

    def across(x):
        if log_x:
            share = (log10(x) - log10(low_x)) / ((log10(high_x) - log10(low_x)) or 1)
        else:
            share = (x - low_x) / ((high_x - low_x) or 1)
        return LEFT + share * (WIDTH - LEFT - RIGHT)

    def up(y):
        if y_min:
            return HEIGHT - BOTTOM - log10(y / y_min) / log10(high_y / y_min) * (HEIGHT - TOP - BOTTOM)
        return HEIGHT - BOTTOM - y / high_y * (HEIGHT - TOP - BOTTOM)

    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        f'<text x="{LEFT}" y="22" font-size="14">{escape(title)}</text>',
    ]
    if y_min:
        ticks = [y_min * 10**step for step in range(int(log10(high_y / y_min) + 1.01))]
    else:
        ticks = [high_y * tick / 5 for tick in range(6)]
    for value in ticks:
        y = up(value)
        out.append(f'<line x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}" stroke="#ddd"/>')
        out.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{value:.4g}</text>')
    for x in sorted(set(xs)):
        at = across(x)
        bottom = HEIGHT - BOTTOM
        out.append(f'<line x1="{at:.1f}" y1="{bottom}" x2="{at:.1f}" y2="{bottom + 4}" stroke="black"/>')
        out.append(f'<text x="{at:.1f}" y="{bottom + 18}" text-anchor="middle">{number(x)}</text>')
    out.append(
        f'<path d="M{LEFT},{TOP} V{HEIGHT - BOTTOM} H{WIDTH - RIGHT}" fill="none" stroke="black"/>'
    )
    middle = (LEFT + WIDTH - RIGHT) / 2
    out.append(f'<text x="{middle}" y="{HEIGHT - 12}" text-anchor="middle">{escape(x_label)}</text>')
    out.append(
        f'<text transform="translate(16,{HEIGHT / 2}) rotate(-90)" text-anchor="middle">'
        f"{escape(y_label)}</text>"
    )
    colours = -1
    for index, (name, points) in enumerate(series):
        colours += name not in dots
        colour = COLOURS[colours % len(COLOURS)]
        path_of = " ".join(
            f"{'M' if at == 0 else 'L'}{across(x):.1f},{up(min(y, high_y)):.1f}"
            for at, (x, y) in enumerate(points)
        )
        if name not in dots:
            out.append(f'<path d="{path_of}" fill="none" stroke="{colour}" stroke-width="2"/>')
        if name in dots or not dots:
            for x, y in points:
                out.append(f'<circle cx="{across(x):.1f}" cy="{up(min(y, high_y)):.1f}" r="3" fill="{colour}"/>')
        y = TOP + 10 + 18 * index
        if name in dots:
            out.append(f'<circle cx="{WIDTH - RIGHT + 18}" cy="{y - 7}" r="3" fill="{colour}"/>')
        else:
            out.append(f'<rect x="{WIDTH - RIGHT + 12}" y="{y - 9}" width="12" height="4" fill="{colour}"/>')
        out.append(f'<text x="{WIDTH - RIGHT + 30}" y="{y - 3}">{escape(name)}</text>')
    out.append("</svg>\n")
    with open(path, "w") as file:
        file.write("\n".join(out))


def number(value):
    """A tick's label: 10k, 10M, 0.5."""
    for size, suffix in ((1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:g}{suffix}"
    return f"{value:g}"


def table(head, rows):
    """A Markdown table."""
    out = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    out += ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows]
    return "\n".join(out)
