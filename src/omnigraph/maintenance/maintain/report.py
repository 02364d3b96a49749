"""The report of a `maintain` run as one HTML page: no script, no font, no image, no external address.

Plots are SVG inside of the page, drawn by `bars`: per table one bar before and one after. Everything that comes from
the graph (names of tables and branches, messages) is escaped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

from omnigraph.config.sizes import short_size_text

if TYPE_CHECKING:
    from omnigraph.maintenance.maintain.run import Figures, MaintainResult, Step
    from omnigraph.maintenance.stats import GraphStats, TableStats

MANIFEST_ROW = "__manifest"
_ROW, _BAR, _LEFT, _WIDE, _RIGHT = 34, 12, 190, 400, 90
_NAME_MAX = 24
"""Characters of a name in a plot: of 11 px and one width, they fit on the left, whatever the font."""
_COLOURS = {"done": "good", "nothing": "calm", "previewed": "calm", "problems": "bad", "failed": "bad"}


@dataclass(frozen=True)
class Bar:
    """One table in a plot. None: nothing to draw, as for a table that was created or dropped."""

    label: str
    before: float | None
    after: float | None


def count_text(number: float) -> str:
    return f"{number:,.0f}"


def share_text(number: float) -> str:
    """Never 100 % for less than all of it."""
    return f"{int(number * 1000) / 10:g} %"


def bars(title: str, rows: Sequence[Bar], shown: Callable[[float], str], *, maximum: float | None = None) -> str:
    """A plot with two bars per row on one scale, which ends at `maximum` or at the longest bar."""
    values = [v for row in rows for v in (row.before, row.after) if v is not None]
    longest = maximum or max(values, default=0.0) or 1.0
    height = _ROW * len(rows) + 8
    parts = [
        f'<svg viewBox="0 0 {_LEFT + _WIDE + _RIGHT} {height}" role="img" aria-label="{escape(title)}">',
        f"<title>{escape(title)}</title>",
    ]
    for i, row in enumerate(rows):
        top = 4 + i * _ROW
        parts.append(
            f'<text class="name" x="{_LEFT - 8}" y="{top + _BAR + 3}">{escape(_short(row.label))}'
            f"<title>{escape(row.label)}</title></text>"
        )
        for kind, value, y in (("before", row.before, top), ("after", row.after, top + _BAR + 2)):
            if value is None:
                continue
            width = max(1.0, _WIDE * value / longest) if value else 0.0
            text = escape(f"{row.label}, {kind}: {shown(value)}")
            parts.append(
                f'<rect class="{kind}" x="{_LEFT}" y="{y}" width="{width:.1f}" height="{_BAR}">'
                f"<title>{text}</title></rect>"
            )
            parts.append(f'<text x="{_LEFT + width + 6:.1f}" y="{y + _BAR - 2}">{escape(shown(value))}</text>')
    parts.append("</svg>")
    return f"<figure><figcaption>{escape(title)}</figcaption>{''.join(parts)}</figure>"


def _short(label: str) -> str:
    end = _NAME_MAX // 2
    return label if len(label) <= _NAME_MAX else f"{label[: _NAME_MAX - end - 1]}…{label[-end:]}"


def page(result: MaintainResult) -> str:
    verdict = ("ok", "good") if result.ok else ("something needs a look", "bad")
    when = result.started_at.strftime("%Y-%m-%d %H:%M UTC")
    body = [
        f"<h1>Maintenance of {escape(result.graph)}</h1>",
        f'<p class="lead"><span class="badge {verdict[1]}">{verdict[0]}</span> {when}, {result.seconds:.1f} s</p>',
        _steps(result.steps),
        *(part for figures in result.figures for part in _branch(figures)),
        *_findings(result),
    ]
    return _FRAME.format(title=escape(f"maintenance of {result.graph}"), style=_STYLE, body="\n".join(body))


def _steps(steps: Sequence[Step]) -> str:
    rows = []
    for step in steps:
        name = step.name if step.branch is None else f"{step.name} ({step.branch})"
        notes = "".join(f"<li>{escape(note)}</li>" for note in step.notes)
        text = escape(step.summary) + (f"<ul>{notes}</ul>" if notes else "")
        badge = f'<span class="badge {_COLOURS[step.outcome]}">{step.outcome}</span>'
        took = _number(f"{step.seconds:.1f} s")
        rows.append(f'<tr><td>{escape(name)}</td><td>{badge}</td><td class="told">{text}</td>{took}</tr>')
    return _framed(("step", "", "", "time"), rows)


def _framed(heads: Sequence[str], rows: Sequence[str]) -> str:
    """A table that scrolls where the page is narrower."""
    first = "".join(f"<th>{name}</th>" for name in heads)
    return f'<div class="scroll"><table><tr>{first}</tr>{"".join(rows)}</table></div>'


def _number(text: str) -> str:
    return f'<td class="number">{escape(text)}</td>'


# ---- figures ---------------------------------------------------------------------------------------------------------


def _branch(figures: Figures) -> Iterator[str]:
    yield f"<h2>Branch {escape(figures.branch)}</h2>"
    if figures.error is not None:
        yield f'<p class="bad">It could not be measured: {escape(figures.error)}</p>'
    if figures.before is None and figures.after is None:
        return
    yield '<p><span class="key before"></span> before <span class="key after"></span> after</p>'
    yield '<div class="plots">'
    own = _manifest_bar(figures, lambda g: g.manifest_fragments)
    yield bars("fragments", [*_bars(figures, lambda t: t.fragments), own], count_text)
    own = _manifest_bar(figures, lambda g: g.manifest_bytes)
    yield bars("bytes on disk", [*_bars(figures, lambda t: t.bytes_on_disk), own], short_size_text)
    own = _manifest_bar(figures, lambda g: g.manifest_versions)
    yield bars("versions", [*_bars(figures, lambda t: t.versions), own], count_text)
    yield bars("index coverage", list(_bars(figures, lambda t: t.coverage)), share_text, maximum=1.0)
    yield "</div>"
    yield _table(figures)


def _tables(stats: GraphStats | None) -> dict[str, TableStats]:
    return {} if stats is None else {t.table_key: t for t in stats.tables}


def _keys(figures: Figures) -> list[str]:
    return list(dict.fromkeys((*_tables(figures.after), *_tables(figures.before))))


def _bars(figures: Figures, of: Callable[[TableStats], float]) -> Iterator[Bar]:
    before, after = _tables(figures.before), _tables(figures.after)

    def value(table: TableStats | None) -> float | None:
        return None if table is None or table.error is not None else of(table)

    for key in _keys(figures):
        yield Bar(key, value(before.get(key)), value(after.get(key)))


def _manifest_bar(figures: Figures, of: Callable[[GraphStats], float]) -> Bar:
    return Bar(
        MANIFEST_ROW,
        None if figures.before is None else of(figures.before),
        None if figures.after is None else of(figures.after),
    )


_COLUMNS: tuple[tuple[str, Callable[[Any], float], Callable[[float], str]], ...] = (
    ("rows", lambda t: t.rows, count_text),
    ("deleted rows", lambda t: t.deleted_rows, count_text),
    ("fragments", lambda t: t.fragments, count_text),
    ("small", lambda t: t.small_fragments, count_text),
    ("live", lambda t: t.bytes_live, short_size_text),
    ("on disk", lambda t: t.bytes_on_disk, short_size_text),
    ("versions", lambda t: t.versions, count_text),
    ("coverage", lambda t: t.coverage, share_text),
)


def _table(figures: Figures) -> str:
    before, after = _tables(figures.before), _tables(figures.after)
    rows = []
    for key in _keys(figures):
        cells = [f"<td>{escape(key)}</td>"]
        for _, of, shown in _COLUMNS:
            cells.append(_number(_moved(before.get(key), after.get(key), of, shown)))
        problem = next((t.error for t in (after.get(key), before.get(key)) if t is not None and t.error), None)
        cells.append(f"<td>{escape(problem or '')}</td>")
        rows.append(f"<tr>{''.join(cells)}</tr>")
    rows.append(_manifest_row(figures))
    return _framed(("table", *(name for name, _, _ in _COLUMNS), ""), rows)


def _manifest_row(figures: Figures) -> str:
    of: dict[str, Callable[[GraphStats], float]] = {
        "fragments": lambda g: g.manifest_fragments,
        "on disk": lambda g: g.manifest_bytes,
        "versions": lambda g: g.manifest_versions,
    }
    cells = [f"<td>{MANIFEST_ROW}</td>"]
    for name, _, shown in _COLUMNS:
        values = (
            []
            if name not in of
            else ["–" if g is None else shown(of[name](g)) for g in (figures.before, figures.after)]
        )
        cells.append(_number(_arrow(values)))
    return f"<tr>{''.join(cells)}<td></td></tr>"


def _moved(
    before: TableStats | None, after: TableStats | None, of: Callable[[Any], float], shown: Callable[[float], str]
) -> str:
    return _arrow([shown(of(t)) if t is not None and t.error is None else "–" for t in (before, after)])


def _arrow(values: Sequence[str]) -> str:
    """Before and after, once if they are the same."""
    return " → ".join(dict.fromkeys(values))


def _findings(result: MaintainResult) -> Iterator[str]:
    verified = next((s.result for s in result.steps if s.name == "verify" and s.result is not None), None)
    findings = [] if verified is None else verified["findings"]
    if not findings:
        return
    yield "<h2>What verify found</h2>"
    rows = []
    for finding in findings:
        where = " ".join(part for part in (finding["table"], finding["branch"] and f"on {finding['branch']}") if part)
        cells = (finding["severity"], finding["code"], where, finding["message"], finding["remedy"])
        rows.append("<tr>" + "".join(f"<td>{escape(str(cell))}</td>" for cell in cells) + "</tr>")
    yield _framed(("", "code", "where", "", "what to do"), rows)


# ---- frame -----------------------------------------------------------------------------------------------------------

_STYLE = """
:root { color-scheme: light dark; --ink: #1c2430; --soft: #66707d; --line: #d9dee5; --before: #b4bdc9; --after: #2f6fde;
  --good: #1f7a4d; --bad: #b3261e; --back: #ffffff; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ee; --soft: #9aa4b2; --line: #39424e; --before: #5d6876;
  --after: #6b9cf0; --good: #58c08b; --bad: #f28b82; --back: #14181e; } }
body { margin: 2rem auto; max-width: 74rem; padding: 0 1rem; color: var(--ink); background: var(--back);
  font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.5rem; overflow-wrap: anywhere; } h2 { font-size: 1.15rem; margin-top: 2rem; }
.lead { color: var(--soft); }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; margin: 1rem 0; }
th { text-align: left; color: var(--soft); font-weight: 500; }
th, td { padding: .3rem .6rem .3rem 0; border-bottom: 1px solid var(--line); vertical-align: top; }
td.number { white-space: nowrap; font-variant-numeric: tabular-nums; }
td.told { overflow-wrap: anywhere; }
ul { margin: .2rem 0; padding-left: 1.1rem; color: var(--soft); }
.badge { border: 1px solid currentColor; border-radius: .6rem; padding: 0 .5rem; font-size: .85rem;
  white-space: nowrap; }
.good { color: var(--good); } .bad { color: var(--bad); } .calm { color: var(--soft); }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(30rem, 100%), 1fr)); gap: 1rem; }
figure { margin: 0; } figcaption { font-weight: 600; }
svg { width: 100%; height: auto; } svg text { fill: var(--ink); font: 11px system-ui, sans-serif; }
svg text.name { text-anchor: end; font-family: ui-monospace, monospace; }
rect.before { fill: var(--before); } rect.after { fill: var(--after); }
.key { display: inline-block; width: .8rem; height: .8rem; margin-left: .6rem; }
.key.before { background: var(--before); } .key.after { background: var(--after); }
"""
_FRAME = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
{body}
</body>
</html>
"""
