"""The step viewer's page in a browser, as tests drive it."""

from __future__ import annotations

from typing import Any


class Page:
    """One page at one size."""

    def __init__(self, driver: Any, url: str, size: tuple[int, int] = (1280, 900)):
        self.driver = driver
        metrics = {"width": size[0], "height": size[1], "deviceScaleFactor": 1, "mobile": False}
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        driver.get(url)
        # The page unpacks itself after it is loaded, which takes its time on a busy machine.
        from selenium.webdriver.support.ui import WebDriverWait

        ready = "return document.documentElement.dataset.ready"
        WebDriverWait(driver, 30).until(lambda _: self.js(ready) is not None, message="the page does not get ready")
        assert self.js(ready) == "true", driver.get_log("browser")

    def js(self, script: str, *args: Any) -> Any:
        return self.driver.execute_script(script, *args)

    def find(self, selector: str) -> Any:
        return self.driver.find_element("css selector", selector)

    def all(self, selector: str) -> list[Any]:
        return self.driver.find_elements("css selector", selector)

    def click(self, selector: str) -> None:
        element = self.find(selector)
        self.js("arguments[0].scrollIntoView({block: 'center'})", element)
        element.click()

    def step(self) -> str:
        return self.find(".stepno").text

    def press(self, *keys: str) -> None:
        from selenium.webdriver.common.action_chains import ActionChains

        ActionChains(self.driver).send_keys(*keys).perform()

    def choose(self, selector: str, value: str) -> None:
        from selenium.webdriver.support.ui import Select

        Select(self.find(selector)).select_by_value(value)

    def panel(self) -> str:
        return self.find(".output").text

    def done(self) -> None:
        """No error, no warning in the console, and nothing asked of a network."""
        assert [e for e in self.driver.get_log("browser") if e["level"] in ("SEVERE", "WARNING")] == []
        fetched = self.js("return performance.getEntriesByType('resource').map(e => e.name)")
        assert [name for name in fetched if not name.startswith("data:")] == []
