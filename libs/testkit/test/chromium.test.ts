import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { afterAll, beforeAll, expect, test } from "vitest";
import { eventually, openHiddenTab, pageAt, startChromium } from "../src/index.ts";

let browser: Awaited<ReturnType<typeof startChromium>>;
let server: Server;
let origin: string;
const asked: string[] = [];

/** It counts how often its timer runs, and tells that when it is asked: a fetch waits for no timer. */
const TICKING = `<script>
  let ticks = 0;
  setInterval(() => { ticks += 1; }, 20);
  const look = async () => {
    await fetch("/seen/" + document.visibilityState + "/" + ticks);
    look();
  };
  look();
</script>`;

beforeAll(async () => {
  server = createServer((request, response) => {
    const url = request.url ?? "";
    asked.push(url);
    if (url === "/ticking") {
      response.setHeader("content-type", "text/html");
      response.end(TICKING);
    } else {
      setTimeout(() => response.end("from the server"), 50);
    }
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  origin = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  browser = await startChromium();
});
afterAll(async () => {
  await browser.close();
  server.closeAllConnections();
  server.close();
});

test("[KIT13] a page of any origin speaks with the real server there", async () => {
  const page = await pageAt(browser, origin, "<title>mine</title>");
  expect(await page.title()).toBe("mine");
  expect(await page.evaluate("fetch('/other').then((r) => r.text())")).toBe("from the server");
  expect(asked).not.toContain("/test-page");
  await page.close();
});

test("[KIT13] a hidden tab is hidden, and its timers stand still", async () => {
  await openHiddenTab(browser, `${origin}/ticking`);
  const hidden = (): string[] => asked.filter((url) => url.startsWith("/seen/hidden/"));
  const ticks = (): number[] => hidden().map((url) => Number(url.split("/").at(-1)));
  // Each look takes 50 ms and more; a timer of 20 ms would have run at least as often as there were looks.
  await eventually(() => {
    const last = ticks().slice(-20);
    return last.length === 20 && (last.at(-1) ?? 0) - (last[0] ?? 0) <= 1;
  });
});
