"""Calls as OpenStudio's client makes them: `SCRIPT URL TOKEN`."""

import io
import json
import sys
import urllib.error
import urllib.request
import zipfile
from base64 import b64encode

base, token = sys.argv[1:]
CREDENTIALS = "Basic " + b64encode(f"client:{token}".encode()).decode()


def call(method, path, body=None, kind="application/json", expect=(200, 201, 204)):
    data = json.dumps(body).encode() if body is not None and kind == "application/json" else body
    request = urllib.request.Request(base + path, data, {"Authorization": CREDENTIALS}, method=method)
    if data is not None:
        request.add_header("Content-Type", kind)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            status, headers, content = answer.status, answer.headers, answer.read()
    except urllib.error.HTTPError as error:
        status, headers, content = error.code, error.headers, error.read()
    assert status in (expect if isinstance(expect, tuple) else (expect,)), (method, path, status, content)
    is_json = headers.get("Content-Type", "").startswith("application/json")
    return json.loads(content) if is_json else content.decode()


def archive(files):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as zipped:
        for name, text in files.items():
            zipped.writestr(name, text)
    return out.getvalue()


def upload(analysis, content, expect=201):
    edge = "----boundary"
    head = f'--{edge}\r\nContent-Disposition: form-data; name="file"; filename="analysis.zip"\r\nContent-Type: application/zip\r\n\r\n'
    body = head.encode() + content + f"\r\n--{edge}--\r\n".encode()
    return call("POST", f"/analyses/{analysis}/upload.json", body, f"multipart/form-data; boundary={edge}", expect)


def action(analysis, what, kind, expect=200):
    return call("POST", f"/analyses/{analysis}/action.json", {"analysis_action": what, "analysis_type": kind, "without_delay": False, "simulate_data_point_filename": "simulate_data_point.rb"}, expect=expect)
