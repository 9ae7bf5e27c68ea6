"""Looks for OpenCL devices, says why one is missing and which line fixes it."""

from __future__ import annotations

import argparse

from ferro.report import emit, to_json


def configure(parser: argparse.ArgumentParser, common: argparse.ArgumentParser) -> None:
    parser.epilog = "exit code: 0 where OpenCL offers a device, else 1"


def run(args: argparse.Namespace) -> int:
    from ferro.runtime.doctor import OK, examine

    findings = examine()
    found = any(f.subject == "device" and f.status == OK for f in findings)
    if args.json:
        emit(to_json({"works": found, "findings": findings}))
        return 0 if found else 1
    for finding in findings:
        emit(f"{finding.status:8} {finding.subject}: {finding.text}")
        if finding.fix:
            emit(f"{'':8} fix: {finding.fix}")
    return 0 if found else 1
