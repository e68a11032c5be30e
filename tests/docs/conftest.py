"""A tab of a headless browser without network, driven over its debugging pipe."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

# the browser reads from descriptor 3 and writes to 4
HAND_OVER = """
import fcntl, os, sys
read, write = (fcntl.fcntl(int(n), fcntl.F_DUPFD, 10) for n in sys.argv[1:3])
os.dup2(read, 3)
os.dup2(write, 4)
os.execvp(sys.argv[3], sys.argv[3:])
"""


class Tab:
    """One page at a time; what it asked for and what it complained of is kept."""

    def __init__(self, browser: str, folder: Path) -> None:
        read, self._out = os.pipe()
        self._in, write = os.pipe()
        options = (
            *("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--hide-scrollbars"),
            *(f"--user-data-dir={folder}", "--host-resolver-rules=MAP * ~NOTFOUND"),
            *("--remote-debugging-pipe", "about:blank"),
        )
        self._process = subprocess.Popen(
            [sys.executable, "-c", HAND_OVER, str(read), str(write), browser, *options],
            pass_fds=(read, write),
            stderr=subprocess.DEVNULL,
        )
        os.close(read)
        os.close(write)
        self._rest, self._count, self._session = b"", 0, ""
        self.events: list[dict[str, Any]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Network", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def _message(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            part = os.read(self._in, 1 << 16)
            if not part:
                raise EOFError("the browser has gone")
            self._rest += part
        one, _, self._rest = self._rest.partition(b"\0")
        found: dict[str, Any] = json.loads(one)
        return found

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Ask the browser for something, and keep the events that come before its answer."""
        self._count += 1
        asked = {"id": self._count, "method": method, "params": params}
        if self._session:
            asked["sessionId"] = self._session
        os.write(self._out, json.dumps(asked).encode() + b"\0")
        while True:
            said = self._message()
            if said.get("id") == self._count:
                assert "error" not in said, said["error"]
                found: dict[str, Any] = said["result"]
                return found
            self.events.append(said)

    def open(self, page: Path, width: int, height: int = 900) -> None:
        """Load a file at a width, to the end of its scripts."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.call("Emulation.setDeviceMetricsOverride", **size)
        self.events.clear()
        self.call("Page.navigate", url=page.as_uri())
        while not any(e["method"] == "Page.loadEventFired" for e in self.events):
            self.events.append(self._message())
        self.run("window.MathJax ? MathJax.startup.promise.then(() => 0) : 0")

    def run(self, script: str) -> Any:
        """Return the value of an expression, a promise awaited."""
        found = self.call(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def set(self, name: str, value: Any) -> None:
        """Choose a value of a control."""
        element = f"document.getElementById({json.dumps(name)})"
        self.run(
            f"{element}.value = {json.dumps(value)}; {element}.dispatchEvent(new Event('input'))"
        )

    def said(self, name: str) -> str:
        """Return the text of an element."""
        return str(self.run(f"document.getElementById({json.dumps(name)}).textContent"))

    def drag(self, name: str, start: float, end: float) -> None:
        """Drag the thumb of a slider from one fraction of its track to another, with the mouse."""
        element = f"document.getElementById({json.dumps(name)})"
        box = self.run(
            f"{element}.scrollIntoView({{block: 'center'}}), (r => [r.left, r.top, r.width, r.height])"
            f"({element}.getBoundingClientRect())"
        )

        def at(kind: str, fraction: float) -> None:
            x = box[0] + 8 + (box[2] - 16) * fraction  # half a thumb inside either end
            mouse = {"x": x, "y": box[1] + box[3] / 2, "button": "left", "clickCount": 1}
            self.call("Input.dispatchMouseEvent", type=kind, **mouse, buttons=1)

        at("mousePressed", start)
        for k in range(1, 6):
            at("mouseMoved", start + (end - start) * k / 5)
        at("mouseReleased", end)

    def overflow(self) -> float:
        """Return by how many pixels the page is wider than its window."""
        page = "document.documentElement"
        return float(self.run(f"{page}.scrollWidth - {page}.clientWidth"))

    def complaints(self) -> list[str]:
        """Return errors, and requests that leave the disk."""
        found = []
        for e in self.events:
            told = e["params"]
            if e["method"] == "Runtime.exceptionThrown":
                found.append(str(told["exceptionDetails"]))
            if e["method"] == "Log.entryAdded" and told["entry"]["level"] == "error":
                found.append(str(told["entry"]))
            if e["method"] == "Network.requestWillBeSent":
                url = told["request"]["url"]
                found += [] if url.startswith(("file:", "data:", "blob:")) else [url]
        return found

    def picture(self, path: Path) -> None:
        """Write a picture of the window."""
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot")["data"]))

    def close(self) -> None:
        """End the browser."""
        os.close(self._out)
        os.close(self._in)
        self._process.terminate()
        self._process.wait(30)


@pytest.fixture(scope="module")
def tab(browser: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    """Return a tab that the tests of a file share."""
    found = Tab(browser, tmp_path_factory.mktemp("profile"))
    yield found
    found.close()
