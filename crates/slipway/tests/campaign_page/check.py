"""The page of campaigns, in a browser: `check.py URL FOLDER`. Pictures go to the folder. The campaign `page` has points that fail."""

import sys
import tempfile

from webdriver import ELEMENT, Browser

url, folder = sys.argv[1:]
base = url.split("?")[0]
NAME = "page"


def tab(browser, name):
    browser.go(f"{base}#/c/{NAME}/{name}")
    browser.until(f"the tab {name}", f"return document.querySelector('#tab-{name}')?.getAttribute('aria-selected') === 'true' && document.querySelector('#panel').children.length > 0")


def handle(browser, axis, which):
    browser.run("document.querySelector(arguments[0]).focus()", f"[data-handle={axis}-{which}]")


def chosen(browser):
    return int(browser.run("return document.querySelector('figcaption [role=status]').textContent").split(" of ")[0])


def check(browser):
    # Nobody gets in without a token, and the one in the address goes from it.
    browser.go(base)
    browser.until("the question for a token", "return document.querySelector('#token')")
    browser.keys(["wrong", "Enter"])
    browser.until("a refusal", "return document.querySelector('#alert').textContent.includes('say who you are')")
    browser.go(url)
    browser.until("the list", "return document.querySelector('.list .card')")
    assert "token" not in browser.run("return location.href")
    browser.picture(f"{folder}/list.png")

    # A campaign starts by a click, and its progress comes by itself.
    browser.go(f"{base}#/c/{NAME}")
    start = browser.button("Start")
    browser.click(start)
    browser.until("a rate", "return document.querySelector('.state')?.textContent === 'running' && /points per minute\\n\\d/.test(document.body.innerText)")
    browser.until("the time left", "return /time left\\n\\d/.test(document.body.innerText)")
    browser.until("workers", "return document.querySelectorAll('tbody tr').length > 0")
    # Buttons stay while progress comes, so that a click begins and ends on the same one.
    assert browser.run("return arguments[0].isConnected && arguments[0].hidden", {ELEMENT: start}), browser.text()
    browser.picture(f"{folder}/running.png")
    browser.until("the end", "return document.querySelector('.state')?.textContent === 'ended'")
    live = browser.run("return document.querySelector('#live').textContent")
    assert "ended, 100 percent" in live, live
    assert "2 failed" in browser.text().replace("\n", " "), browser.text()
    browser.until("all lines", "return document.querySelector('figcaption [role=status]')?.textContent.startsWith('46 of 46')")
    browser.picture(f"{folder}/overview.png")

    # Ranges are chosen by keyboard and by pointer; table and dots follow.
    tab(browser, "results")
    assert chosen(browser) == 46
    handle(browser, "x", 1)
    browser.keys(["ArrowDown"] * 10)
    by_keys = chosen(browser)
    assert 0 < by_keys < 46, by_keys
    assert f"{by_keys} of 46" in browser.text()
    assert browser.run("return document.querySelectorAll('.dot:not(.dim)').length") == by_keys
    value = browser.run("return document.activeElement.getAttribute('aria-valuetext')")
    assert value and browser.run("return document.activeElement.getAttribute('role')") == "slider", value
    browser.picture(f"{folder}/results.png")
    browser.keys(["Escape"])
    assert chosen(browser) == 46
    box = browser.run("const box = [...document.querySelectorAll('.hit')].at(-1).getBoundingClientRect(); return [box.x + box.width / 2, box.y, box.height]")
    browser.drag(box[0], box[1] + box[2] * 0.75, box[1] + box[2] * 0.2)
    by_hand = chosen(browser)
    assert 0 < by_hand < 46, by_hand
    browser.click(browser.button("Choose all"))
    assert chosen(browser) == 46
    # The table sorts, and says so.
    browser.run("document.querySelector('th button[data-at=\"1\"]').focus()")
    browser.keys(["Enter"])
    assert browser.run("return document.querySelector('th[aria-sort=ascending]').textContent") == "x"
    column = browser.run("return [...document.querySelectorAll('tbody tr')].map((row) => Number(row.children[1].textContent))")
    assert column == sorted(column) and len(column) == 46, column
    # A point opens by keyboard, and closes; the focus comes back.
    browser.run("document.querySelector('td .plain').focus()")
    browser.keys(["Enter"])
    browser.until("a point", "return document.querySelector('#point').open && document.querySelector('#point').innerText.includes('slipway.stdout')")
    browser.keys(["Escape"])
    assert browser.run("return !document.querySelector('#point').open && document.activeElement.matches('td .plain')")

    tab(browser, "series")
    browser.until("curves", "return document.querySelectorAll('path.curve').length >= 16")
    browser.picture(f"{folder}/series.png")
    tab(browser, "sensitivity")
    browser.until("bars", "return document.querySelectorAll('svg.plot rect').length >= 4")
    browser.picture(f"{folder}/sensitivity.png")

    # Failures: the simulator's message in the list, its log in the point. Output of a program is text, whatever it is.
    tab(browser, "failures")
    browser.until("the failures", "return document.querySelectorAll('tbody tr').length === 2")
    assert "** Severe ** <img src=x onerror=alert(1)>" in browser.text(), browser.text()
    browser.click(browser.run("return document.querySelector('td .plain')")[ELEMENT])
    browser.until("its log", "return document.querySelector('#point').open && document.querySelector('#point pre:last-of-type').textContent.includes('Severe')")
    assert browser.run("return document.querySelectorAll('#point img, main img').length") == 0
    browser.picture(f"{folder}/failure.png", whole=False)
    browser.keys(["Escape"])
    # Tabs go by arrow keys.
    browser.run("document.querySelector('#tab-failures').focus()")
    browser.keys(["ArrowRight"])
    browser.until("the first tab", "return document.activeElement.id === 'tab-overview'")

    # Everything that can be operated has a name, and nothing came from elsewhere.
    nameless = browser.run("""
        return [...document.querySelectorAll('button, a, input, select, [role=slider], svg[role=img], svg[role=group]')]
          .filter((one) => !(one.getAttribute('aria-label') || one.textContent.trim() || one.labels?.length)).map((one) => one.outerHTML)""")
    assert nameless == [], nameless
    outside = browser.run("return performance.getEntriesByType('resource').map((one) => one.name).filter((name) => !name.startsWith(location.origin))")
    assert outside == [], outside
    errors = [line for line in browser.log() if "401" not in line and "404" not in line]
    assert errors == [], errors


def dark(browser):
    browser.go(url)
    browser.until("the list", "return document.querySelector('.list .card')")
    browser.go(f"{base}#/c/{NAME}/results")
    browser.until("the plots", "return document.querySelectorAll('svg.plot').length === 2")
    colour = browser.run("return getComputedStyle(document.body).backgroundColor")
    assert colour == "rgb(17, 21, 25)", colour
    assert browser.run("return getComputedStyle(document.querySelector('.bar span')).transitionDuration") == "0s", "motion is reduced"
    browser.picture(f"{folder}/dark.png")


for part, settings in [(check, {}), (dark, {"dark": True, "reduced": True})]:
    with tempfile.TemporaryDirectory(prefix="slipway-browser-") as profile:
        browser = Browser(profile, **settings)
        try:
            part(browser)
        finally:
            browser.end()
