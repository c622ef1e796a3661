"""Reads ../workloads.txt, the table of workloads (its header explains the format)."""
import pathlib
import re
from dataclasses import dataclass, field, replace

TABLE = pathlib.Path(__file__).parent.parent / "workloads.txt"


@dataclass
class Row:
    """A workload; `backward` distinguishes the two workloads of an `op` line."""
    kind: str
    name: str
    group: str
    fn: str
    inputs: list = field(default_factory=list)
    options: dict = field(default_factory=dict)
    backward: bool = False


def number(text):
    """The text as a number if it is one, else the text."""
    for convert in (int, float):
        try:
            return convert(text)
        except ValueError:
            pass
    return text


def parse(line, group):
    words = line.split(" -- ")[0].split()
    kind, name = words[:2]
    inputs = [word for word in words[2:] if "=" not in word]
    options = dict(word.split("=", 1) for word in words[2:] if "=" in word)
    options = {key: number(value) for key, value in options.items()}
    return Row(kind, name, group, options.get("fn", name.split("/")[1]), inputs, options)


def lines(path):
    """Lines without comments, each with its indented continuations."""
    text = re.sub(r"\n +(?=\S)", " ", path.read_text())
    return [line for line in text.splitlines() if line.strip() and line[0] != "#"]


def read(path=TABLE):
    """All workloads by name."""
    rows, group = [], None
    for line in lines(path):
        if line[0] == "[":
            group = line[1:line.index("]")]
            continue
        row = parse(line, group)
        if row.kind != "op":
            rows.append(row)
            continue
        rows.append(replace(row, name=row.name + "/fwd"))
        if any(spec.startswith("*") for spec in row.inputs):
            rows.append(replace(row, name=row.name + "/fwdbwd", backward=True))
    return {row.name: row for row in rows}
