// Debian's chromium, driven by playwright-core: nothing is downloaded.
import { existsSync } from 'node:fs';
import { chromium } from 'playwright-core';

const PLACES = ['/usr/bin/chromium', '/usr/bin/chromium-browser', '/usr/bin/google-chrome'];
export const program = PLACES.find((place) => existsSync(place));

export async function open(options = {}) {
  const flags = ['--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage', '--disable-background-networking', '--no-proxy-server'];
  return chromium.launch({ executablePath: program, args: flags, ...options });
}

// What a page must not do, noted for the whole of its life: scripts that fail, refusals of the policy, requests to anybody else.
export async function watched(browser, origin, options = {}) {
  const context = await browser.newContext({ reducedMotion: 'reduce', ...options });
  const page = await context.newPage();
  const noted = { errors: [], foreign: [] };
  page.on('pageerror', (error) => noted.errors.push(`${error}`));
  page.on('console', (message) => {
    // The browser itself writes a line for each answer that is not 2xx; those are the page's to show, not an error of it.
    if (message.type() === 'error' && !/Failed to load resource|net::ERR_/.test(message.text())) noted.errors.push(message.text());
  });
  page.on('request', (request) => {
    const url = request.url();
    if (!url.startsWith(origin) && !url.startsWith('data:') && !url.startsWith('blob:')) noted.foreign.push(url);
  });
  return { context, page, noted };
}
