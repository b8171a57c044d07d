"""The incident in one picture: what two drafts' trainer reported, and what they are worth; plain SVG."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol
from xml.sax.saxutils import escape

from datagen.replay.score import LEVEL

MEASURED = "accuracy of the first drafted token, held-out conversations"
WIDTH, LABELS, ROW, TOP = 900, 400, 30, 70
COLOURS = {"reported": "#999999", "well": "#1b7837", "ill": "#d6604d"}


class Between(Protocol):
    """An interval."""

    @property
    def low(self) -> float: ...

    @property
    def high(self) -> float: ...


class Bar(NamedTuple):
    """One accuracy of a draft, with its interval where it has one."""

    draft: str
    label: str
    value: float
    interval: Between | None


def draw(bars: Sequence[Bar]) -> str:
    """Return the picture as SVG; bars of one draft stand together."""
    top = max((bar.value for bar in bars), default=0.0) * 1.15 or 1.0
    drawn, at, earlier = [], TOP, ""
    for bar in bars:
        if bar.draft != earlier:
            at += 34
            drawn.append(_text(20, at - 10, f"draft trained {bar.draft}", "bold"))
            earlier = bar.draft
        drawn += _bar(bar, at, (WIDTH - LABELS - 110) / top)
        at += ROW
    return "\n".join(
        [
            f"<svg xmlns='http://www.w3.org/2000/svg' width='{WIDTH}' height='{at + 20}' "
            "font-family='DejaVu Sans, Helvetica, Arial, sans-serif'>",
            f"<rect width='{WIDTH}' height='{at + 20}' fill='white'/>",
            _text(20, 34, "Healthy in its own validation, bad when served", "bold", 20),
            _text(20, 58, f"{MEASURED}; lines are {LEVEL:.0%} intervals"),
            *drawn,
            "</svg>\n",
        ]
    )


def _bar(bar: Bar, at: int, scale: float) -> Iterator[str]:
    kind = "reported" if bar.interval is None else "ill" if bar.draft == "as then" else "well"
    length = bar.value * scale
    yield _text(20, at + 17, bar.label)
    yield f"<rect x='{LABELS}' y='{at + 3}' width='{length:.1f}' height='{ROW - 10}' fill='{COLOURS[kind]}'/>"
    end = length
    if bar.interval is not None:
        low, end = bar.interval.low * scale, max(bar.interval.high * scale, length)
        middle = at + 3 + (ROW - 10) / 2
        yield (
            f"<line x1='{LABELS + low:.1f}' x2='{LABELS + end:.1f}' y1='{middle}' y2='{middle}' "
            "stroke='black' stroke-width='2'/>"
        )
    yield _text(round(LABELS + end + 8), at + 18, f"{bar.value:.1%}")


def _text(x: int, y: int, text: str, weight: str = "normal", size: int = 13) -> str:
    return f"<text x='{x}' y='{y}' font-size='{size}' font-weight='{weight}'>{escape(text)}</text>"
