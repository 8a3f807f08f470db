"""A page in one file: facts, pictures, prose. No script, nothing from elsewhere, fit to print.

Whatever comes from data is escaped here and nowhere else: builders take plain text.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

from bagwise._extras import need

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Okabe and Ito's colours: told apart by colour-blind readers.
BLUE, ORANGE, PINK, GREY = "#0072B2", "#E69F00", "#CC79A7", "#767676"
#: of all pictures, so that they are of one piece; text stays text
STYLE = {
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "0.45",
    "axes.labelcolor": "0.15",
    "xtick.color": "0.3",
    "ytick.color": "0.3",
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": "0.92",
    "legend.frameon": False,
    "legend.fontsize": 8,
    "lines.linewidth": 1.6,
    "axes.unicode_minus": True,
}
CSS = """
:root { color-scheme: light; }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 2rem 1.25rem 3rem; max-width: 70rem; color: #1a1a1a;
  background: #fff; font: 16px/1.5 system-ui, "Segoe UI", "Liberation Sans", Arial, sans-serif; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 0; text-wrap: balance; }
.under { color: #555; margin: .35rem 0 1.5rem; overflow-wrap: anywhere; }
h2 { font-size: 1.15rem; margin: 2.25rem 0 .6rem; padding-top: .8rem;
  border-top: 1px solid #d8d8d8; }
p, ul { max-width: 46rem; margin: .5rem 0; }
ul { padding-left: 1.2rem; }
.facts { display: grid; grid-template-columns: repeat(auto-fit, minmax(8.5rem, 1fr));
  gap: 0 1.25rem; margin: 0; padding: 0; border-top: 3px solid #0072B2; }
.facts div { padding: .65rem 0 .5rem; border-bottom: 1px solid #d8d8d8; }
.facts dt { color: #555; font-size: .8rem; }
.facts dd { margin: 0; font-size: 1.35rem; font-weight: 600; line-height: 1.3;
  font-variant-numeric: tabular-nums; }
.facts small { display: block; color: #555; font-size: .75rem; font-weight: 400; }
.pictures { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(26rem, 100%), 1fr));
  gap: 1.75rem 2rem; margin-top: 1.75rem; }
figure { margin: 0; break-inside: avoid; min-width: 0; }
figure h3 { font-size: 1rem; margin: 0 0 .4rem; }
figure svg { display: block; width: 100%; height: auto; }
figure svg text { font-family: inherit !important; }
figcaption { color: #444; font-size: .875rem; margin-top: .35rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums; }
th, td { padding: .28rem .9rem .28rem 0; text-align: left; vertical-align: top;
  border-bottom: 1px solid #e4e4e4; }
th { color: #555; font-weight: 600; }
td { overflow-wrap: anywhere; }
td:first-child:not(:only-child) { overflow-wrap: break-word; }
tbody th { white-space: nowrap; }
.number { text-align: right; white-space: nowrap; }
pre { background: #f5f5f5; padding: .8rem 1rem; overflow-x: auto; font-size: .85rem;
  white-space: pre-wrap; overflow-wrap: anywhere; }
details { margin: .8rem 0; }
summary { cursor: pointer; color: #0072B2; }
footer { color: #666; font-size: .8rem; margin-top: 2.5rem; }
@media (max-width: 34rem) { body { padding: 1.25rem 1rem 2rem; } h1 { font-size: 1.4rem; }
  .facts { grid-template-columns: 1fr 1fr; } .facts dd { font-size: 1.15rem; } }
@page { size: A4; margin: 14mm; }
@media print {
  body { padding: 0; max-width: none; font-size: 10pt; color: #000; }
  .facts { grid-template-columns: repeat(3, 1fr); }
  figcaption, .facts small { font-size: 8pt; } table, pre { font-size: 8.5pt; }
  details::details-content { content-visibility: visible; block-size: auto; }
  summary { display: none; }
  .pictures { grid-template-columns: 1fr 1fr; gap: 6mm 7mm; margin-top: 6mm; }
  h2, h3, summary { break-after: avoid; }
  tr, pre, .facts div { break-inside: avoid; }
  p, ul { max-width: none; }
  .under, .facts dt, .facts small, figcaption, th, footer { color: #000; }
  pre { background: none; border: 1px solid #999; }
}
"""


@dataclass(frozen=True)
class Fact:
    """A number that matters, what it is, and a few words on it."""

    label: str
    value: str
    note: str = ""


@dataclass(frozen=True, eq=False)
class Picture:
    """A figure with its title, a caption, and words for those who cannot see it."""

    title: str
    figure: Figure
    caption: str
    alt: str


def page(
    title: str, under: str, facts: Sequence[Fact], pictures: Sequence[Picture], body: str, end: str
) -> str:
    """The whole page; ``body`` is of the builders below."""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{CSS}</style>\n</head>\n<body>\n"
        f'<header><h1>{escape(title)}</h1>\n<p class="under">{escape(under)}</p></header>\n<main>\n'
        f"{_facts(facts)}\n{gallery(pictures)}\n{body}\n</main>\n"
        f"<footer>{escape(end)}</footer>\n</body>\n</html>\n"
    )


def _facts(facts: Sequence[Fact]) -> str:
    return '<dl class="facts">' + "".join(map(_fact, facts)) + "</dl>"


def _fact(fact: Fact) -> str:
    note = f"<small>{escape(fact.note)}</small>" if fact.note else ""
    return f"<div><dt>{escape(fact.label)}</dt><dd>{escape(fact.value)}{note}</dd></div>"


def gallery(pictures: Sequence[Picture]) -> str:
    """Pictures side by side, or one below the other where the screen is narrow."""
    shown = "\n".join(_figure(picture, f"p{i}-") for i, picture in enumerate(pictures))
    return f'<div class="pictures">\n{shown}\n</div>' if pictures else ""


def _figure(picture: Picture, prefix: str) -> str:
    title, caption = escape(picture.title), escape(picture.caption)
    drawn = svg(picture.figure, picture.alt, prefix + _slug(picture.title))
    return f"<figure><h3>{title}</h3>\n{drawn}\n<figcaption>{caption}</figcaption></figure>"


def _slug(text: str) -> str:
    return re.sub(r"[^a-z]+", "-", text.lower())[:20]


def svg(figure: Figure, alt: str, prefix: str) -> str:
    """A figure as SVG to put into a page: no header, no metadata, names of its own; closes it."""
    pyplot = need("matplotlib.pyplot", "plot")
    with io.StringIO() as file, pyplot.rc_context({**STYLE, "svg.hashsalt": prefix}):
        figure.savefig(file, format="svg", metadata={"Date": None})
        text = file.getvalue()
    pyplot.close(figure)
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>\s*", "", text, flags=re.DOTALL)
    # Ids are of the whole page: those of other pictures must not be the same.
    text = re.sub(r' id="([^"]+)"', rf' id="{prefix}\1"', text)
    text = re.sub(r'(xlink:href="#|url\(#)', rf"\1{prefix}", text)
    return text.replace("<svg ", f'<svg role="img" aria-label="{escape(alt)}" ', 1).strip()


def section(title: str, *parts: str) -> str:
    """A heading with what belongs under it."""
    return f"<section>\n<h2>{escape(title)}</h2>\n" + "\n".join(parts) + "\n</section>"


def prose(*sentences: str) -> str:
    """Paragraphs, one a sentence or several."""
    return "\n".join(f"<p>{escape(text)}</p>" for text in sentences)


def listed(sentences: Iterable[str]) -> str:
    """A list."""
    return "<ul>" + "".join(f"<li>{escape(text)}</li>" for text in sentences) + "</ul>"


def pairs(rows: Iterable[tuple[str, str]]) -> str:
    """A table of names and what they are."""
    lines = "".join(f"<tr><th>{escape(a)}</th><td>{escape(b)}</td></tr>" for a, b in rows)
    return f'<div class="wide"><table><tbody>{lines}</tbody></table></div>'


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table whose first column is text and whose others are numbers."""
    kinds = ["", *[' class="number"'] * (len(columns) - 1)]
    head = "".join(f"<th{k}>{escape(c)}</th>" for k, c in zip(kinds, columns, strict=True))
    lines = "".join(
        "<tr>"
        + "".join(f"<td{k}>{escape(v)}</td>" for k, v in zip(kinds, row, strict=True))
        + "</tr>"
        for row in rows
    )
    whole = f"<table><thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table>"
    return f'<div class="wide">{whole}</div>'


def folded(summary: str, *parts: str) -> str:
    """What few will want to see, behind a line to click."""
    return f"<details><summary>{escape(summary)}</summary>\n" + "\n".join(parts) + "\n</details>"


def commands(*lines: str) -> str:
    """Lines to type."""
    return f"<pre>{escape(chr(10).join(lines))}</pre>"


def plain(text: str) -> str:
    """Text that Matplotlib draws as it stands: it takes what lies between dollar signs for TeX."""
    return text.replace("\\", "\\\\").replace("$", r"\$") if "$" in text else text


def short(text: str, most: int = 28) -> str:
    """A name that leaves room for a picture."""
    return text if len(text) <= most else text[: most - 1] + "…"


def number(value: float, digits: int = 3) -> str:
    """A number with its digits that matter, a true minus sign and commas."""
    if value != value:
        return "–"
    large = abs(value) >= 10 ** (digits - 1)
    text = f"{value:,.0f}" if large and abs(value) < 1e7 else f"{value:.{digits}g}"
    return text.replace("-", "−")


def with_error(value: float, error: float) -> str:
    """A number with its standard error, as many decimals for both as the error is worth."""
    if not (error > 0 and error < float("inf")):
        return number(value)
    exponent = f"{error:.1e}".split("e")
    places = max(0, min(8, (1 if exponent[0] < "3" else 0) - int(exponent[1])))
    return f"{value:,.{places}f} ± {error:,.{places}f}".replace("-", "−")
