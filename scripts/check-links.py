#!/usr/bin/env python3
"""Checks that links in Markdown files lead to a file and a heading of this repository. Prints each that does not.

    scripts/check-links.py FILE.md...

Links to other sites are not fetched: their state is no property of a change.
"""
import functools
import pathlib
import re
import sys
import urllib.parse

CODE = re.compile(r"^```.*?^```[^\n]*$|`[^`\n]*`", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\(\s*<?([^()\s<>]+)>?(?:\s+\"[^\"]*\")?\s*\)|^\[[^\]]+\]:\s+(\S+)", re.MULTILINE)
HEADING = re.compile(r"^#{1,6}\s+(.*?)\s*#*$", re.MULTILINE)
ANCHOR = re.compile(r"<a\s+(?:id|name)=\"([^\"]+)\"")
ELSEWHERE = re.compile(r"[a-z][a-z0-9+.-]*:", re.IGNORECASE)


def slug(heading):
    """The anchor that GitHub gives a heading.

    >>> slug("Router, policy & `fast`")
    'router-policy--fast'
    >>> slug("[The guide](guide/README.md)")
    'the-guide'
    """
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
    return re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")


def without_code(text):
    """The text with code blanked out, so that lines keep their numbers.

    >>> without_code("a `[b](c)` d")
    'a          d'
    """
    return CODE.sub(lambda code: re.sub(r"[^\n]", " ", code.group()), text)


@functools.cache
def anchors(path):
    """All anchors of a Markdown file; headings of one text are numbered."""
    text = path.read_text(encoding="utf-8")
    outside = re.sub(r"^```.*?^```[^\n]*$", "", text, flags=re.DOTALL | re.MULTILINE)
    found, seen = set(ANCHOR.findall(outside)), {}
    for heading in HEADING.findall(outside):
        name = slug(heading)
        found.add(f"{name}-{seen[name]}" if name in seen else name)
        seen[name] = seen.get(name, 0) + 1
    return found


def fault(page, link):
    """The fault of a link on a page, or None."""
    path, _, anchor = urllib.parse.unquote(link).partition("#")
    target = page.parent / path if path else page
    if not target.exists():
        return f"there is no {target}"
    if anchor and target.suffix == ".md" and anchor not in anchors(target):
        return f"{target} has no heading #{anchor}"
    return None


def main(names):
    """The exit code after all files are checked."""
    faults = 0
    for page in map(pathlib.Path, names):
        text = without_code(page.read_text(encoding="utf-8"))
        for match in LINK.finditer(text):
            link = match.group(1) or match.group(2)
            if ELSEWHERE.match(link):
                continue
            if wrong := fault(page, link):
                faults += 1
                line = text.count("\n", 0, match.start()) + 1
                print(f"{page}:{line}: {link}: {wrong}", file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
