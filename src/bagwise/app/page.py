"""The page: controls on the left, what follows from them on the right, and what links the two."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import product
from typing import Any

from dash import ClientsideFunction, Dash, Input, Output, dcc, html, no_update

from bagwise.app import figures
from bagwise.app.curves import View, look
from bagwise.app.state import NAMES, State, field_of, plain
from bagwise.planning import PlanLine

START = State(rows=20_000, features=20, snr=2, epsilon=0.5, lo=-5, hi=5)


def _steps(low: int, high: int, digits: tuple[float, ...] = (1, 2, 3, 5, 7)) -> list[float]:
    """Round numbers between powers of ten: where a slider stops."""
    steps = [float(f"{d}e{p}") for p, d in product(range(low, high), digits)]
    return [*steps, float(f"1e{high}")]


@dataclass(frozen=True)
class Control:
    """A field with a slider that stops at round numbers."""

    name: str
    label: str
    hint: str
    stops: list[float]


SIDES = [-s for s in reversed(_steps(-1, 3))] + [0.0] + _steps(-1, 3)
CONTROLS = (
    Control("rows", "Rows", "of the training table", _steps(2, 9)),
    Control("features", "Features", "numbers a row", _steps(0, 4)),
    Control("snr", "Signal-to-noise ratio", "of variances", _steps(-2, 2)),
    Control("noise", "Noise", "standard deviation", _steps(-1, 3)),
    Control("epsilon", "Epsilon", "privacy budget; small is private", _steps(-2, 1)),
    Control("lo", "Lower bound", "of a response, public", SIDES),
    Control("hi", "Upper bound", "of a response, public", SIDES),
    Control("bag_size", "Bag size", "rows a bag; empty: the best", _steps(0, 3)),
    Control("rho", "rho", "0 to 1; empty: the best", [0.0, *_steps(-6, 0)]),
)
GROUPS = (
    ("The table", ("rows", "features", "snr", "noise")),
    ("Privacy", ("epsilon", "lo", "hi")),
    ("Your choice", ("bag_size", "rho")),
)
PICTURES = (
    ("by-size", "What a bag size costs", "by_size"),
    ("by-rho", "What rho costs at this bag size", "by_rho"),
    ("map", "Error over bag size and rho", "risk_map"),
)
PRIVATE = "private"


def layout() -> html.Main:
    """The whole page, showing a plan before anything is set."""
    view = look(START)
    start = dict(zip(IDS, shown(view), strict=True))
    return html.Main(
        [
            dcc.Location(id="url", refresh=False),
            *(dcc.Store(id=name, data=start.get(name)) for name in ("query", "best", "found")),
            dcc.Store(id="stops", data={c.name: c.stops for c in CONTROLS}),
            html.Header(
                [
                    html.H1("Plan a release of bag means"),
                    html.P(start["answer"], id="answer", **_aria(live="polite")),
                    html.P(start["why"], id="why"),
                    html.P("", id="trouble", className="error", role="alert"),
                ]
            ),
            html.Div([_controls(), _results(start)], className="columns"),
            html.Footer(html.P(start["limits"], id="limits")),
        ]
    )


def _controls() -> html.Div:
    """Every control in its group."""
    known = {control.name: control for control in CONTROLS}
    groups = [
        html.Fieldset(
            [
                html.Legend(title),
                *([_no_privacy()] if title == "Privacy" else []),
                *(_control(known[name]) for name in names),
                *([_button("follow", "Follow the best")] if title == "Your choice" else []),
            ]
        )
        for title, names in GROUPS
    ]
    # Its file field is made in page.js: Dash has none that labels and keyboards know.
    upload = html.Fieldset(
        [
            html.Legend("From a release"),
            html.P("Signal and noise of a zipped Release folder; it is read here and not kept."),
            html.Div(id="upload"),
            html.P("", id="estimate", **_aria(live="polite")),
            html.Div(_button("use", "Use these numbers"), id="offer", hidden=True),
        ]
    )
    return html.Div([*groups, upload], className="controls", role="form", **_aria(label="Plan"))


def _control(control: Control) -> html.Div:
    """Label, field, slider and a place for what is wrong with it."""
    name, value = control.name, getattr(START, control.name)
    # Telephones show digits then; theirs have no minus, which bounds need.
    keys: dict[str, Any] = {} if name in ("lo", "hi") else {"inputMode": "decimal"}
    return html.Div(
        [
            html.Label([control.label, " ", html.Small(control.hint)], htmlFor=name),
            html.Div(
                [
                    dcc.Input(
                        id=name,
                        type="text",
                        value="" if value is None else plain(value),
                        placeholder="best" if value is None else "",
                        maxLength=40,
                        debounce=0.3,
                        className="field",
                        **keys,
                    ),
                    dcc.Input(
                        id=f"{name}-slider",
                        type="range",
                        min=0,
                        max=len(control.stops) - 1,
                        step=1,
                        value=0,
                        className="slider",
                    ),
                ],
                className="pair",
            ),
            html.P("", id=f"{name}-error", className="error", role="alert"),
        ],
        className="control",
        id=f"{name}-control",
    )


def _no_privacy() -> dcc.Checklist:
    options = [{"label": "Protect responses with noise", "value": "yes"}]
    return dcc.Checklist(id=PRIVATE, options=options, value=["yes"])


def _button(name: str, text: str) -> html.Button:
    return html.Button(text, id=name, type="button", n_clicks=0)


def _results(start: dict[str, Any]) -> html.Div:
    """Numbers, pictures, and what to take away."""
    pictures = [
        html.Section(
            [
                html.H2(title, id=f"{name}-title"),
                dcc.Graph(
                    id=name,
                    figure=start[name],
                    config={"displayModeBar": False, "responsive": True},
                    style={"height": "360px"},
                ),
            ],
        )
        for name, title, _ in PICTURES
    ]
    numbers = html.Section([html.H2("In numbers"), html.Div(start["numbers"], id="numbers")])
    parts = [_legend(), html.Div([*pictures, numbers], className="pictures"), _take_away(start)]
    return html.Div(parts, className="results")


def _legend() -> html.Ul:
    """What lines and points of all pictures mean."""
    lines = [("expected error", figures.INK, "solid"), *figures.PARTS.values()]
    keys = [
        html.Li([html.Span(className=f"key {dash}", style={"color": colour}), name])
        for name, colour, dash in (*lines, (figures.AT_RHO, "#7b8794", "thin"))
    ]
    marks = [("your choice", "ring", ""), ("best", "star", "★")]
    keys += [html.Li([html.Span(text, className=name), said]) for said, name, text in marks]
    return html.Ul(keys, className="legend")


def _take_away(start: dict[str, Any]) -> html.Section:
    """Commands, files and a link."""
    return html.Section(
        [
            html.H2("Take it with you"),
            html.Pre(start["commands"], id="commands", tabIndex=0),
            html.Div(
                [
                    html.A("Plan as JSON", id="json", download="plan.json", href="/api/plan"),
                    html.A("Commands as a file", id="shell", download="plan.sh", href="/"),
                    _button("copy", "Copy a link to this page"),
                    html.Span("", id="copied", **_aria(live="polite")),
                ],
                className="actions",
            ),
        ]
    )


def _aria(**words: str) -> dict[str, Any]:
    """Attributes for those who hear the page: a name, or that a change is said."""
    return {f"aria-{name}": value for name, value in words.items()}


#: what a change is answered with, in order
IDS = (
    *(name for name, _, _ in PICTURES),
    *("answer", "why", "limits", "numbers", "commands", "query", "best"),
)
ERRORS = tuple(f"{name}-error" for name in NAMES)


def shown(view: View) -> list[Any]:
    """What the page shows of a view, in the order of ``IDS``."""
    state, plan, here = view.state, view.plan, view.here
    cut = next(i for i, s in enumerate(plan.sentences) if s.startswith("These figures hold"))
    return [
        *(getattr(figures, draw)(view) for _, _, draw in PICTURES),
        [plan.sentences[0], html.Span(_choice(view))],
        " ".join(plan.sentences[1:cut]),
        " ".join(plan.sentences[cut:]),
        table(view),
        "\n".join(state.commands(here)),
        state.query(),
        {"bag_size": plan.bag_size, "rho": view.best_here.rho},
    ]


def _choice(view: View) -> str:
    """What the point that is looked at would cost, when it does not follow the best."""
    if view.state.bag_size is None and view.state.rho is None:
        return ""
    here, least = view.here, view.plan.risk
    rows = f"{here.bag_size:,} rows" if here.bag_size > 1 else "one row"
    times = f", {digits(here.risk / least)} times the best" if least else ""
    return f" Your choice, bags of {rows} with rho = {here.rho:.2g}: {here.risk:.2g}{times}."


def table(view: View) -> html.Div:
    """The choice, the best, and noise on each label, with what their errors are made of."""
    plan = view.plan
    private = plan.epsilon < float("inf")
    labels = "Noise on each label" if private else "Full labels"
    names = ("Your choice", "Best", labels)
    lines = (view.here, plan.best, plan.per_label)
    columns = [_texts(line, plan.risk) for line in lines]
    rows = zip(HEADS, *columns, strict=True)
    every = [[f"{k.bag_size:,}", *_texts(k, plan.risk)[1:]] for k in plan.table]
    return html.Div(
        [
            _table(("", *names), rows, "points"),
            html.Details(
                [
                    html.Summary("Every bag size at its best rho"),
                    _wide(_table(HEADS, every, "sizes"), "Every bag size"),
                ]
            ),
        ]
    )


HEADS = ("rows a bag", "rho", "bias", "sampling noise", "privacy noise", "error", "times the best")


def _table(heads: Iterable[str], lines: Iterable[Iterable[str]], name: str) -> html.Table:
    """A table whose first column names its lines."""
    body = [html.Tr([html.Th(first, scope="row"), *map(html.Td, rest)]) for first, *rest in lines]
    head = html.Tr([html.Th(text, scope="col") for text in heads])
    return html.Table([html.Thead(head), html.Tbody(body)], id=name)


def _wide(inner: html.Table, name: str) -> html.Div:
    """A table that scrolls by itself on a narrow screen, with keys too."""
    return html.Div(inner, className="wide", tabIndex=0, role="region", **_aria(label=name))


def _texts(line: PlanLine, least: float) -> list[str]:
    """The numbers of a line of the plan, in the order of ``HEADS``."""
    numbers = (line.rho, line.bias, line.sampling, line.privacy, line.risk)
    times = line.risk / least if least else 1.0
    return [f"{line.bag_size:,}", *map(digits, numbers), digits(times)]


def digits(number: float) -> str:
    """Three digits, as the command line prints them."""
    return f"{number:.3g}"


def changed(*values: Any) -> list[Any]:
    """Answer a change of fields; what cannot be planned is said beside its field."""
    *texts, private = values
    words = dict(zip(NAMES, texts, strict=True))
    if not private:
        words["epsilon"] = ""
    errors = dict.fromkeys(("", *NAMES), "")
    try:
        found: list[Any] = shown(look(State.parse(words)))
    except ValueError as error:
        name = field_of(str(error))
        errors[name if name in NAMES else ""] = str(error)
        errors[""] = errors[""] or "Shown below is the last plan that worked."
        found = [no_update] * len(IDS)
    return [*found, errors[""], *(errors[name] for name in NAMES)]


def connect(app: Dash) -> None:
    """Tell Dash what happens when; what runs in the browser is in assets/page.js."""
    kinds = {name: "figure" for name, _, _ in PICTURES} | {"query": "data", "best": "data"}
    outputs = [Output(name, kinds.get(name, "children")) for name in IDS]
    problems = [Output("trouble", "children"), *(Output(name, "children") for name in ERRORS)]
    fields = [Input(name, "value") for name in NAMES]
    private = Input(PRIVATE, "value")
    app.callback([*outputs, *problems], [*fields, private])(changed)

    def browser(name: str, *wires: Any) -> None:
        app.clientside_callback(ClientsideFunction("page", name), *wires)  # type: ignore[no-untyped-call]

    restored = [*(Output(name, "value") for name in NAMES), Output(PRIVATE, "value")]
    browser("restore", restored, Input("url", "search"))
    browser("typed", *fields, private, Input("best", "data"), Input("stops", "data"))
    link = [Output("json", "href"), Output("shell", "href")]
    browser("linked", link, Input("query", "data"))
    browser("follow", Input("follow", "n_clicks"))
    browser("copy", Input("copy", "n_clicks"))
    browser("faulty", *(Input(name, "children") for name in ERRORS))
    browser("use", Input("use", "n_clicks"), Input("found", "data"))
