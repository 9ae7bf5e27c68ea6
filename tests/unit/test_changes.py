"""Why a program was built, in words: compared with the nearest one of its device and target."""

from __future__ import annotations

import json
from typing import Any

from ferro.changes import Change, changes, nearest, reason


def parts(config: dict[str, int] | None = None, **others: Any) -> dict[str, str]:
    made = {"constants": config or {}, "lanes": others.pop("lanes", None), "lane_axis": []}
    aimed = {"kind": "simd", "dot": "avx2", "features": [], **others.pop("target", {})}
    told = {"kernel": "k" * 64, "codegen": "7", "templates": "t" * 64, "device": "one"}
    objects = {"target": json.dumps(aimed), "config": json.dumps(made)}
    return {**told, **objects, "options": "", "driver": "1", **others}


def words(old: dict[str, str], new: dict[str, str]) -> list[str]:
    return [str(change) for change in changes(old, new)]


def test_each_part_is_named_with_both_values() -> None:
    base = parts()
    assert words(base, parts(driver="2")) == ["driver's version: 1 -> 2"]
    assert words(base, parts(codegen="8")) == ["code generator's version: 7 -> 8"]
    assert words(base, parts(options="-g")) == ["compiler options: none -> -g"]
    assert words(base, parts(templates="x")) == ["the code generator's templates"]
    assert words(base, parts(processor="a")) == ["the processor"]
    assert words(base, base) == []


def test_fields_of_config_and_target_are_compared_one_by_one() -> None:
    assert words(parts({"BM": 4}), parts({"BM": 8})) == ["config BM: 4 -> 8"]
    assert words(parts(), parts(lanes=8)) == ["config lanes: default -> 8"]
    assert words(parts(), parts(target={"features": ["a", "b"]})) == [
        "target features: none -> a b"
    ]


def test_another_kernel_is_told_unless_the_schedule_made_it() -> None:
    other = {"kernel": "o" * 64}
    assert words(parts(), parts(**other))[0].startswith("the kernel itself")
    assert words(parts({"BM": 4}), parts({"BM": 8}, **other)) == ["config BM: 4 -> 8"]
    assert len(words(parts(), parts(driver="2", **other))) == 2


def test_programs_of_another_device_are_not_compared() -> None:
    elsewhere = parts(device="two", driver="9")
    assert nearest(parts(), [elsewhere]) is None
    assert reason(parts(), [elsewhere]) == ("never built for this device before", [])
    assert reason(parts(), []) == ("never built before", [])


def test_the_same_target_is_nearer_than_fewer_changes() -> None:
    other_target = parts(target={"kind": "simt"})
    same_target = parts({"BM": 1, "BN": 2, "BK": 3})
    assert nearest(parts(), [same_target, other_target]) == same_target
    assert nearest(parts(), [other_target]) == other_target


def test_the_newest_of_equally_near_ones_counts() -> None:
    old, new = parts(driver="0"), parts(driver="1.5")
    text, found = reason(parts(driver="2"), [old, new])
    assert text == "driver's version: 1.5 -> 2"
    assert found == [Change("driver", "1.5", "2")]


def test_what_is_no_json_is_compared_as_text() -> None:
    assert words({"config": "?"}, {"config": "!"}) == ["config: ? -> !"]
    assert words({}, {"new": "1"}) == ["new: none -> 1"]
