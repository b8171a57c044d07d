"""A picture of an answer: accuracy by wiring with its interval, and by boundary in each slot; plain SVG.

Colours are told apart in grey too, and every mark has its words beside it.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from textwrap import wrap
from xml.sax.saxutils import escape

from datagen.replay.errors import ReplayError
from datagen.replay.replaying import Answer
from datagen.replay.score import LEVEL, Interval, bootstrap_over
from datagen.replay.telling import Row, rows
from datagen.replay.verdict_words import boundaries_of
from schemas.boundary import all_names
from schemas.problem import Problem

WIDTH = 1180
LABELS = 530
"""Pixels for the names of wirings."""
RIGHT = 90
ROW = 26
SHOWN = 18
COLOURS = {
    "best": "#1b7837",
    "declared": "#2166ac",
    "served": "#d6604d",
    "floor": "#999999",
    "other": "#666666",
}
LINES = ("#2166ac", "#d6604d", "#1b7837", "#762a83", "#b8860b", "#444444")
FONT = "font-family='DejaVu Sans, Helvetica, Arial, sans-serif'"


def write_picture(file: Path, answer: Answer) -> None:
    """Write the picture; raises `ReplayError` where the file cannot be written."""
    try:
        file.write_text(draw(answer), encoding="utf-8")
    except OSError as error:
        problem = Problem(where=str(file), kind="file", message=f"expected a file to write, got {error}")
        raise ReplayError("the picture cannot be written", [problem]) from error


def check_place(file: Path) -> None:
    """Raise `ReplayError` where a picture cannot be written, before the work that it would show."""
    if file.is_dir():
        got = "a folder"
    elif not file.parent.is_dir():
        got = f"no folder {file.parent}"
    elif not os.access(file if file.exists() else file.parent, os.W_OK):
        got = "a place that may not be written to"
    else:
        return
    repair = "make the folder, or name another place"
    problem = Problem(
        where=str(file), kind="file", message=f"expected a file to write, got {got}", repair=repair
    )
    raise ReplayError("the picture cannot be written", [problem])


def draw(answer: Answer) -> str:
    """Return the picture as SVG."""
    shown = _some(rows(answer, answer.findings))
    where = "audit set" if answer.on_audit else answer.reference
    body = [
        _text(20, 34, f"accuracy by wiring: {answer.draft}", size=20, weight="bold"),
        _text(
            20,
            56,
            f"{where}, {answer.findings.n_cases} conversations; bars are {LEVEL:.0%} intervals",
            grey=True,
        ),
    ]
    top = 110
    body += _wirings(shown, top)
    bottom = top + ROW * len(shown) + 40
    if answer.boundaries is not None:
        found = list(_slots(answer, bottom + 40))
        body += found
        bottom += 400 if found else 0
    said = list(_verdict(answer, bottom + 20))
    body += said
    height = bottom + 30 + 20 * len(said)
    return "\n".join(
        [
            f"<svg xmlns='http://www.w3.org/2000/svg' width='{WIDTH}' height='{height}' "
            f"viewBox='0 0 {WIDTH} {height}' {FONT}>",
            f"<rect width='{WIDTH}' height='{height}' fill='white'/>",
            *body,
            "</svg>\n",
        ]
    )


def _some(shown: Sequence[Row]) -> list[Row]:
    return [row for number, row in enumerate(shown) if number < SHOWN or row.kinds != ("other",)]


def _wirings(shown: Sequence[Row], top: int) -> Iterator[str]:
    finite = [row.learned.high for row in shown if row.learned.high < float("inf")]
    scale = Scale(max([*finite, *(row.learned.value for row in shown), 0.05]), LABELS, WIDTH - RIGHT)
    bottom = top + ROW * len(shown)
    for share in scale.ticks():
        x = scale.x(share)
        yield _line(x, top - 12, x, bottom, "#dddddd")
        yield _text(x, bottom + 18, f"{share:.0%}", anchor="middle", grey=True)
    yield from _legend(top - 30)
    for number, row in enumerate(shown):
        yield from _bar(row, scale, top + ROW * number + ROW // 2)


def _bar(row: Row, scale: "Scale", y: int) -> Iterator[str]:
    kind = next((kind for kind in COLOURS if kind in row.kinds), "other")
    colour = COLOURS[kind]
    value, low, high = row.learned
    yield _text(
        LABELS - 12, y + 5, _short(row.title), anchor="end", weight="bold" if kind == "best" else "normal"
    )
    x = scale.x(value)
    width = max(1.0, x - LABELS)
    yield f"<rect x='{LABELS}' y='{y - 8}' width='{width:.1f}' height='16' fill='{colour}' opacity='0.75'/>"
    if high < float("inf"):
        left, right = scale.x(max(0.0, low)), scale.x(high)
        yield _line(left, y, right, y, "black")
        yield from (_line(end, y - 5, end, y + 5, "black") for end in (left, right))
    server = scale.x(row.scores.by["server"].pooled)
    yield f"<circle cx='{server:.1f}' cy='{y}' r='4.5' fill='white' stroke='black' stroke-width='1.5'/>"
    end = max(x, server, scale.x(high) if high < float("inf") else x)
    yield _text(end + 10, y + 5, f"{value:.1%}", size=12)


def _legend(y: int) -> Iterator[str]:
    x = 20
    for kind, words in (
        ("best", "scores best"),
        ("declared", "as declared"),
        ("served", "as served"),
        ("other", "other wirings"),
        ("floor", "without the sample's states"),
    ):
        yield f"<rect x='{x}' y='{y - 10}' width='12' height='12' fill='{COLOURS[kind]}' opacity='0.75'/>"
        yield _text(x + 18, y, words, size=12)
        x += 40 + 7 * len(words)
    yield f"<circle cx='{x + 6}' cy='{y - 4}' r='4.5' fill='white' stroke='black' stroke-width='1.5'/>"
    yield _text(x + 18, y, "as a server would accept", size=12)


def _slots(answer: Answer, top: int) -> Iterator[str]:
    """Yield, for each slot, accuracy by the boundary in it, the other slots as they are best."""
    lines = _by_boundary(answer)
    if answer.boundaries is None or not any(len(line) > 1 for line in lines):
        return
    names = all_names(answer.n_layers)
    scale = Scale(max(value.value for line in lines for _, value in line), top + 330, top + 60)
    left, right = 70, WIDTH - 200
    step = (right - left) / max(1, len(names) - 1)
    yield _text(
        20, top, "accuracy by the boundary in each slot, the other slots as they are", size=16, weight="bold"
    )
    having = boundaries_of(answer.boundaries, answer.n_layers)
    said = f"audit set, {answer.boundaries.n_cases} conversations, the only ones with {having}"
    yield _text(20, top + 20, said, grey=True)
    for share in scale.ticks():
        yield _line(left, scale.x(share), right, scale.x(share), "#dddddd")
        yield _text(left - 8, scale.x(share) + 4, f"{share:.0%}", anchor="end", grey=True)
    every = max(1, len(names) // 16)
    for place, name in enumerate(names):
        if place % every == 0 or place == len(names) - 1:
            yield _text(
                left + step * place,
                top + 350,
                name.removeprefix("layer"),
                anchor="middle",
                grey=True,
                size=11,
            )
    for slot, line in enumerate(lines):
        yield from _curve(slot, line, answer.findings.best.inputs.fc[slot], scale, (left, step, right))


def _curve(
    slot: int,
    line: Sequence[tuple[int, Interval]],
    chosen: str,
    scale: "Scale",
    across: tuple[float, float, float],
) -> Iterator[str]:
    left, step, right = across
    colour = LINES[slot % len(LINES)]
    points = [(left + step * place, scale.x(value.value)) for place, value in line]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    dash = ("none", "7 4", "2 3")[slot % 3]
    stroke = f"stroke='{colour}' stroke-width='2' stroke-dasharray='{dash}'"
    yield f"<polyline points='{path}' fill='none' {stroke}/>"
    best = max(range(len(line)), key=lambda at: line[at][1].value)
    x, y = points[best]
    yield f"<circle cx='{x:.1f}' cy='{y:.1f}' r='5' fill='{colour}'/>"
    yield _line(right + 15, scale.end + 24 * slot, right + 45, scale.end + 24 * slot, colour, dash)
    yield _text(right + 52, scale.end + 24 * slot + 4, f"slot {slot} ({chosen})", size=12)


def _by_boundary(answer: Answer) -> list[list[tuple[int, Interval]]]:
    """Return, a slot, the place of each boundary that was tried in it alone, and its accuracy."""
    findings, best = answer.boundaries, answer.findings.best
    if findings is None:
        return []
    bootstrap = bootstrap_over(findings.n_cases)
    found: list[list[tuple[int, Interval]]] = []
    for slot in range(len(best.inputs.fc)):
        found.append([])
        for place, name in enumerate(all_names(answer.n_layers)):
            fc = (*best.inputs.fc[:slot], name, *best.inputs.fc[slot + 1 :])
            scores = findings.of(replace(best.inputs, fc=fc), best.target)
            if scores is not None:
                found[-1].append((place, bootstrap.accuracy(scores[1].learned)))
    return found


def _verdict(answer: Answer, top: int) -> Iterator[str]:
    for number, line in enumerate(line for said in answer.verdict.sentences for line in wrap(said, 140)):
        yield _text(20, top + 20 * number, line, size=13)


@dataclass(frozen=True)
class Scale:
    """A share from 0 to `top` as pixels from `start` to `end`."""

    top: float
    start: float
    end: float

    def x(self, share: float) -> float:
        return self.start + (self.end - self.start) * share / self.top

    def ticks(self) -> list[float]:
        step = next(step for step in (0.01, 0.02, 0.05, 0.1, 0.2) if self.top / step <= 8 or step == 0.2)
        return [step * number for number in range(int(self.top / step + 1e-9) + 1)]


def _short(text: str, limit: int = 76) -> str:
    return text if len(text) <= limit else text[: limit - 3] + "..."


def _line(x: float, y: float, x2: float, y2: float, colour: str, dash: str = "none") -> str:
    return (
        f"<line x1='{x:.1f}' y1='{y:.1f}' x2='{x2:.1f}' y2='{y2:.1f}' stroke='{colour}' stroke-width='1.5' "
        f"stroke-dasharray='{dash}'/>"
    )


def _text(
    x: float,
    y: float,
    words: str,
    *,
    size: int = 13,
    anchor: str = "start",
    weight: str = "normal",
    grey: bool = False,
) -> str:
    colour = "#555555" if grey else "#111111"
    return (
        f"<text x='{x:.1f}' y='{y:.1f}' font-size='{size}' text-anchor='{anchor}' font-weight='{weight}' "
        f"fill='{colour}'>{escape(words)}</text>"
    )
