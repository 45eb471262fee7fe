# SPDX-License-Identifier: Apache-2.0
"""A real browser for tests: Chromium, through the WebDriver protocol of its driver."""

import base64
import contextlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import urllib.error
import urllib.request

from helpers import wait_for

DRIVER = shutil.which("chromedriver")
CHROMIUM = shutil.which("chromium")
# Without a screen, and without a word to anybody but the page.
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
         "--disable-component-update", "--disable-sync", "--hide-scrollbars", "--enable-precise-memory-info",
         "--force-prefers-reduced-motion")
SERVE_TRIES = 5
PATIENCE_S = 300  # however busy the cores are: a page with much to draw takes minutes where many others compute
ANSWER_S = 2 * PATIENCE_S  # of the driver, which gives a script PATIENCE_S
NICE = -10  # who looks at a page has a machine of their own; among dozens of processes drawing takes a hundred times as long


def serve():
    """A driver, and its address. It takes the same port for IPv4 and IPv6, and ends if another program has one of the two."""
    for _ in range(SERVE_TRIES):
        driver = subprocess.Popen([DRIVER, "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        with contextlib.suppress(PermissionError):
            os.setpriority(os.PRIO_PROCESS, driver.pid, NICE)  # of the browser, too, which it starts
        said = []
        for line in driver.stdout:
            said.append(line)
            found = re.search(r"successfully on port (\d+)", line)
            if found:
                return driver, f"http://127.0.0.1:{found[1]}"
        driver.stdout.close()
        code = driver.wait()
        if "port not available" not in "".join(said):
            break
    raise AssertionError(f"{DRIVER} ended with {code} before it served: {''.join(said)!r}")


class Browser:
    """with Browser() as browser: browser.open(address)"""

    def __init__(self, width=1360, height=900, dark=False, phone=False):
        self.profile, self.session = tempfile.mkdtemp(prefix="psd_browser."), None
        self.driver, self.base = serve()
        try:
            self.begin(width, height, dark, phone)
        except BaseException:  # nobody calls __exit__ of what was not made
            self.end()
            raise

    def begin(self, width, height, dark, phone):
        flags = [*FLAGS, f"--user-data-dir={self.profile}", f"--window-size={width},{height}"]
        self.session = self.call("POST", "/session", {"capabilities": {"alwaysMatch": {
            "browserName": "chrome", "timeouts": {"script": PATIENCE_S * 1000}, "goog:chromeOptions": {"args": flags, "binary": CHROMIUM}}}})["sessionId"]
        features = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"},
                    {"name": "prefers-reduced-motion", "value": "reduce"}]
        self.devtools("Emulation.setEmulatedMedia", {"features": features})
        self.devtools("Emulation.setDeviceMetricsOverride",
                      {"width": width, "height": height, "deviceScaleFactor": 2 if phone else 1, "mobile": phone})

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.end()

    def end(self):
        try:
            if self.session is not None:
                self.call("DELETE", f"/session/{self.session}")
        finally:
            self.driver.terminate()
            try:
                self.driver.wait(timeout=PATIENCE_S)
            except subprocess.TimeoutExpired:
                self.driver.kill()
                self.driver.wait()
            self.driver.stdout.close()
            shutil.rmtree(self.profile, ignore_errors=True)

    def call(self, method, path, body=None):
        request = urllib.request.Request(self.base + path, method=method,
                                         data=json.dumps(body).encode() if body is not None else None)
        try:
            with urllib.request.urlopen(request, timeout=ANSWER_S) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{path}: {json.load(error)['value']['message']}") from None

    def devtools(self, command, parameters=None):
        return self.call("POST", f"/session/{self.session}/goog/cdp/execute", {"cmd": command, "params": parameters or {}})

    def open(self, address):
        self.call("POST", f"/session/{self.session}/url", {"url": address})

    def run(self, script, *arguments):
        """What a script returns."""
        return self.call("POST", f"/session/{self.session}/execute/sync", {"script": script, "args": arguments})

    def text(self, selector):
        return self.run("return document.querySelector(arguments[0]).innerText", selector)

    def until(self, script, *arguments, what=None):
        """Polls until a script returns something true, which it gives back."""
        return wait_for(lambda: self.run(script, *arguments), PATIENCE_S,
                        lambda: f"{what or script}; the page says {self.text('body')[:1500]!r}")

    def picture(self, path):
        """What is seen of the page, small: WebP."""
        shown = self.devtools("Page.captureScreenshot", {"format": "webp", "quality": 82})["data"]
        pathlib.Path(path).write_bytes(base64.b64decode(shown))
