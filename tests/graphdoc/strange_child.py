"""A child that was taken over: greets as it should, then attacks its parent by its last argument."""

import json
import os
import signal
import sys

from graphdoc.runner import frames

configuration, behaviour = json.loads(sys.argv[2]), sys.argv[1]
requests, answers = configuration["requests"], configuration["answers"]
GREETING = {"ok": {"determinism_class": "strange", "confined": []}}
RAW = {
    "noise": os.urandom(4096),
    "a pickle": b"\x00\x00\x00\x10\x80\x04\x95cposix\nsystem\n",
    "a frame of four gigabytes": b"\xff\xff\xff\xff{}",
    "half a frame": b"\x00\x00\x00\x10{",
    "not an object": b"\x00\x00\x00\x02[]",
    "deep": (100_000).to_bytes(4, "big") + b"[" * 100_000,
}
ANSWERS = {
    "an unknown error": {"error": "SystemExit", "detail": "1"},
    "an error that is a list": {"error": ["Refused"], "detail": {}},
    "neither answer nor error": {"hello": 1},
    "an answer of another kind": {"ok": {"rows": "many", "operations": None}},
    "lengths beyond the arena": {"ok": [2**39, 2**39, 2**39]},
    "negative lengths": {"ok": [-1, -1, -1]},
}

if behaviour == "a strange greeting":
    GREETING = {"ok": {"determinism_class": 7}}
frames.send_frame(answers, GREETING)
frames.receive_frame(requests)
if behaviour in RAW:
    os.write(answers, RAW[behaviour])
    os.close(answers)
elif behaviour in ANSWERS:
    frames.send_frame(answers, ANSWERS[behaviour])
elif behaviour == "odd truths":
    os.pwrite(configuration["arena"], b"\x02" * 4096, 0)
    frames.send_frame(answers, {"ok": None})
elif behaviour == "a crash":
    os.kill(os.getpid(), signal.SIGSEGV)
elif behaviour == "a shrunken arena":
    try:
        os.ftruncate(configuration["arena"], 0)
    except PermissionError:
        frames.send_frame(answers, {"error": "Refused", "detail": "the arena cannot be shrunk"})
signal.pause()
