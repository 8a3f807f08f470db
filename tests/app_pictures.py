"""The planner's two pictures in the documentation: python -m tests.app_pictures"""

import shutil
from pathlib import Path

from playwright.sync_api import expect, sync_playwright

from tests.served import served

STATE = "?rows=20000&features=20&snr=2&epsilon=0.5&lo=-5&hi=5&bag_size=30"
SCREENS = {"wide": (1280, 1000, True), "narrow": (360, 740, False)}


def main():
    """Draw both."""
    images = Path(__file__).parent.parent / "docs" / "images"
    with served() as (address, _), sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
        )
        for name, (width, height, whole) in SCREENS.items():
            page = browser.new_page(viewport={"width": width, "height": height})
            page.goto(address + STATE)
            page.wait_for_selector("#map .main-svg")
            expect(page.locator("#rho")).to_have_attribute("placeholder", "best: 0.014")
            page.wait_for_load_state("networkidle")
            page.screenshot(path=images / f"app_{name}.png", full_page=whole)
        browser.close()


if __name__ == "__main__":
    main()
