"""A browser, driven by WebDriver (https://www.w3.org/TR/webdriver2) over plain HTTP."""

import base64
import json
import subprocess
import time
import urllib.error
import urllib.request

ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
PATIENCE = 60
KEYS = {"Tab": "\ue004", "Enter": "\ue007", "Escape": "\ue00c", "ArrowDown": "\ue015", "ArrowUp": "\ue013", "ArrowRight": "\ue014"}


class Browser:
    def __init__(self, folder, dark=False, reduced=False):
        self.driver = subprocess.Popen(["chromedriver", "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.base = None
        for line in self.driver.stdout:
            if "started successfully on port " in line:
                self.base = "http://127.0.0.1:" + line.split("on port ")[1].split(".")[0].strip()
                break
        assert self.base, "chromedriver did not start"
        arguments = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
                     "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", f"--user-data-dir={folder}", "--window-size=1280,1000"]
        arguments += ["--force-dark-mode", "--blink-settings=preferredColorScheme=0"] if dark else ["--blink-settings=preferredColorScheme=1"]
        arguments += ["--force-prefers-reduced-motion"] if reduced else []
        wanted = {"browserName": "chrome", "acceptInsecureCerts": True, "goog:chromeOptions": {"binary": "/usr/bin/chromium", "args": arguments}, "goog:loggingPrefs": {"browser": "ALL"}}
        self.session = ""
        self.session = "/session/" + self.call("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})["sessionId"]

    def call(self, method, path, body=None):
        data = None if method == "GET" or method == "DELETE" else json.dumps(body or {}).encode()
        request = urllib.request.Request(self.base + self.session + path, data, {"Content-Type": "application/json"}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=120) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{method} {path}: {json.load(error)['value']['message']}") from None

    def end(self):
        try:
            self.call("DELETE", "")
        finally:
            self.driver.terminate()
            self.driver.wait()

    def go(self, url):
        self.call("POST", "/url", {"url": url})

    def run(self, script, *arguments):
        return self.call("POST", "/execute/sync", {"script": script, "args": list(arguments)})

    def until(self, what, script, *arguments):
        """Waits until a script returns something, which another process brings about."""
        deadline = time.monotonic() + PATIENCE
        while True:
            value = self.run(script, *arguments)
            if value:
                return value
            assert time.monotonic() < deadline, f"in vain: {what}; the page has: {self.run('return document.body.innerText')[:2000]}; {self.log()}"
            time.sleep(0.05)

    def text(self):
        return self.run("return document.body.innerText")

    def find(self, selector):
        return self.call("POST", "/element", {"using": "css selector", "value": selector})[ELEMENT]

    def button(self, text):
        """The button, tab or link with this text."""
        script = "return [...document.querySelectorAll('button, a')].find((one) => one.textContent === arguments[0])"
        return self.until(f"a button {text}", script, text)[ELEMENT]

    def click(self, element):
        self.call("POST", f"/element/{element}/click")

    def keys(self, text):
        """Presses keys where the focus is."""
        focus = self.call("GET", "/element/active")[ELEMENT]
        self.call("POST", f"/element/{focus}/value", {"text": "".join(KEYS.get(key, key) for key in text)})

    def drag(self, x, y, to_y):
        """Drags the pointer along a column of the window."""
        move = lambda px, py: {"type": "pointerMove", "duration": 50, "x": int(px), "y": int(py)}
        actions = [move(x, y), {"type": "pointerDown", "button": 0}, move(x, (y + to_y) / 2), move(x, to_y), {"type": "pointerUp", "button": 0}]
        self.call("POST", "/actions", {"actions": [{"type": "pointer", "id": "mouse", "actions": actions}]})

    def picture(self, path, whole=True):
        if whole:
            height = self.run("return document.documentElement.scrollHeight")
            self.call("POST", "/window/rect", {"width": 1280, "height": max(1000, min(height + 140, 3000))})
        with open(path, "wb") as file:
            file.write(base64.b64decode(self.call("GET", "/screenshot")))
        if whole:
            self.call("POST", "/window/rect", {"width": 1280, "height": 1000})

    def log(self):
        """Errors on the page's console."""
        return [one["message"] for one in self.call("POST", "/se/log", {"type": "browser"}) if one["level"] == "SEVERE"]
