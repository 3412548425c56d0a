"""The messages of a binary report: number, name and type of each field that is read.

The layout is published with ncu, in extras/FileFormat; one description fits the reports of ncu 2018 to 2025. Fields
for graphs and for the rules of ranges were found in reports of ncu 2025.3. Here every field may be missing, since newer
writers omit fields that older ones require, and unknown fields are skipped. Texts are bytes: damaged texts are not
UTF-8. Values of metrics stay encoded, since `encoded_values` decodes many at once.
"""

from __future__ import annotations

from typing import Any

from google.protobuf.internal import api_implementation

from ncu_parsers.report_data.protobuf_messages import Damaged as Damaged
from ncu_parsers.report_data.protobuf_messages import MessageFields, MessageTypes

MESSAGES: dict[str, MessageFields] = {
    "Header": (
        (1, "sources", "uint32"), (2, "results", "uint32"), (3, "session", "Session"), (4, "strings", "Strings"),
        (5, "payload_bytes", "uint32"), (6, "process", "Process"), (7, "ranges", "uint32"), (9, "graphs", "uint32"),
    ),
    "Strings": ((1, "texts", "bytes*"),),
    "Process": ((1, "number", "uint32"), (2, "host", "bytes"), (3, "path", "bytes")),
    "Session": (
        (2, "created", "uint64"), (4, "system", "System"), (6, "devices", "Device*"), (8, "versions", "Version*"),
        (11, "command_line", "bytes"),
    ),
    "System": (
        (1, "name", "bytes"), (2, "build", "bytes"), (3, "processor", "bytes"), (4, "architecture", "bytes"),
        (5, "host", "bytes"),
    ),
    "Device": ((1, "number", "uint32"), (3, "attributes", "Attribute*")),
    "Attribute": ((1, "name", "bytes"), (2, "value", "Value")),
    "Version": ((1, "program", "bytes"), (2, "version", "bytes")),
    "Kernel": (
        (5, "mangled", "bytes"), (6, "function", "bytes"), (7, "name", "bytes"), (10, "grid", "Shape"),
        (11, "block", "Shape"), (13, "metrics", "Metric*"), (14, "created", "uint64"), (15, "source", "Source"),
        (17, "sections", "Section*"), (19, "rules", "Rule*"), (21, "nvtx", "Nvtx"), (22, "context", "uint32"),
        (23, "stream", "uint32"),
    ),
    "Range": (
        (4, "metrics", "Metric*"), (5, "created", "uint64"), (7, "sections", "Section*"), (10, "nvtx", "Nvtx"),
        (11, "context", "uint32"), (15, "references", "uint64*"), (20, "rules", "Rule*"),
    ),
    "Graph": (
        (4, "metrics", "Metric*"), (5, "created", "uint64"), (7, "sections", "Section*"), (10, "nvtx", "Nvtx"),
        (11, "context", "uint32"), (12, "stream", "uint32"), (17, "references", "uint64*"), (22, "rules", "Rule*"),
    ),
    "Shape": ((1, "x", "uint64"), (2, "y", "uint64"), (3, "z", "uint64")),
    "Metric": ((1, "name", "uint32"), (2, "value", "bytes"), (3, "instances", "Instance*"), (4, "series", "uint32")),
    "Instance": ((1, "key", "bytes"), (2, "value", "bytes")),
    "Value": (
        (1, "text", "bytes"), (2, "single", "float"), (3, "double", "double"), (4, "small", "uint32"),
        (5, "whole", "uint64"),
    ),
    "Section": ((1, "name", "bytes"), (8, "sets", "Set*")),
    "Set": ((1, "name", "bytes"),),
    "Rule": ((1, "name", "bytes"), (3, "body", "RuleBody"), (4, "section", "bytes")),
    "RuleBody": ((1, "items", "RuleItem*"),),
    "RuleItem": ((1, "message", "RuleMessage"), (8, "focus", "Focus*"), (10, "speedup", "Speedup")),
    "RuleMessage": ((1, "text", "bytes"), (2, "kind", "uint32")),
    "Focus": ((2, "metric", "bytes"), (3, "value", "double")),
    "Speedup": ((1, "kind", "uint32"), (2, "percent", "double")),
    "Nvtx": ((1, "domains", "NvtxDomain*"), (2, "threads", "NvtxThread*"), (3, "started", "NvtxStarted*")),
    "NvtxDomain": ((1, "number", "uint64"), (2, "name", "bytes")),
    "NvtxThread": ((2, "domains", "NvtxPushed*"),),
    "NvtxPushed": ((1, "domain", "uint64"), (3, "ranges", "NvtxPushedRange*")),
    "NvtxPushedRange": ((1, "name", "bytes"),),
    "NvtxStarted": ((1, "domain", "uint64"), (3, "ranges", "NvtxStartedRange*")),
    "NvtxStartedRange": ((2, "name", "bytes"),),
    "Source": (
        (1, "reference", "uint64"), (2, "code", "bytes"), (3, "ptx", "bytes"), (4, "cubin", "bytes"),
        (6, "sm_revision", "uint32"), (8, "files", "SourceFiles"),
    ),
    "SourceFiles": ((1, "files", "SourceFile*"),),
    "SourceFile": ((1, "path", "bytes"), (2, "content", "bytes")),
}  # fmt: skip
"""Number, name and type of the fields of each message. A type with * is repeated; some types are messages."""

_TYPES = MessageTypes("ncu_bench", MESSAGES)


def decoded(message: str, data: bytes) -> Any:
    """Decode the message of that name in MESSAGES from `data`. Raises `Damaged`."""
    return _TYPES.decoded(message, data)


def text_of(data: bytes) -> str:
    """Decode a text; invalid UTF-8 is replaced."""
    return data.decode("utf-8", "replace")


def is_compiled() -> bool:
    """True if protobuf decodes with its C extension; its Python implementation is many times slower."""
    return api_implementation.Type() != "python"
