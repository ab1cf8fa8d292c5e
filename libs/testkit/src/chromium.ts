/** A real Chromium, for what only a browser does: its WebSocket and EventSource, and tabs that it slows down. */
import { existsSync } from "node:fs";
import { delimiter, join } from "node:path";
import type { Browser, Page } from "playwright-core";

/** Playwright's own wish that hidden tabs run as if somebody looked at them. */
const KEEPS_HIDDEN_TABS_AWAKE = [
  "--disable-background-timer-throttling",
  "--disable-backgrounding-occluded-windows",
  "--disable-renderer-backgrounding",
];

/**
 * A headless Chromium of `TL_CHROMIUM`, or from PATH, with a fresh profile. It is driven through a pipe and
 * exits when that closes, so it does not outlive this process. Close it when done.
 *
 * A hidden tab is slowed down as on a user's desk, only sooner: its timers run once a minute after one second
 * and not after five minutes.
 *
 * Rejects, saying how to get one, where there is none.
 */
export async function startChromium(): Promise<Browser> {
  // Loaded here: it takes a third of a second, and few of those who import the testkit use it.
  const { chromium } = await import("playwright-core");
  return chromium.launch({
    executablePath: chromiumBinary(),
    args: [
      "--headless",
      "--no-sandbox",
      "--disable-gpu",
      "--disable-background-networking",
      "--disable-component-update",
      "--disable-sync",
      "--enable-features=IntensiveWakeUpThrottling:grace_period_seconds/1",
    ],
    ignoreDefaultArgs: KEEPS_HIDDEN_TABS_AWAKE,
  });
}

/**
 * A page of that origin (e.g. `http://127.0.0.1:<port of an edge>`), though nothing there serves pages: its
 * requests to other paths, its WebSockets and its EventSources go to the real server.
 */
export async function pageAt(browser: Browser, origin: string, html = ""): Promise<Page> {
  // The page itself came from no address, and so may not speak with this machine's without being allowed to.
  const page = await browser.newPage({ permissions: ["local-network-access"] });
  const url = `${origin}/test-page`;
  await page.route(url, (route) => route.fulfill({ contentType: "text/html", body: html }));
  await page.goto(url);
  return page;
}

/**
 * Opens the URL in a tab and another tab in front of it. No debugger is attached, since one keeps a tab
 * visible: the page has to tell by itself, to its own server, how it fares (`document.visibilityState`).
 */
export async function openHiddenTab(browser: Browser, url: string): Promise<void> {
  const session = await browser.newBrowserCDPSession();
  await session.send("Target.createTarget", { url });
  const front = await session.send("Target.createTarget", { url: "about:blank" });
  await session.send("Target.activateTarget", front);
  await session.detach();
}

function chromiumBinary(): string {
  const given = process.env["TL_CHROMIUM"];
  if (given !== undefined && given !== "") return given;
  for (const folder of (process.env["PATH"] ?? "").split(delimiter)) {
    for (const name of ["chromium", "chromium-browser", "google-chrome"]) {
      const file = join(folder, name);
      if (existsSync(file)) return file;
    }
  }
  throw new Error(
    "no Chromium on PATH: install one (apt-get install chromium), or name its binary in TL_CHROMIUM",
  );
}
