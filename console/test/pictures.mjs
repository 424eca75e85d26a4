// node test/pictures.mjs ORIGIN DIRECTORY WIDTHS THEMES STATE page=path …: pages for a person to look at (scripts/console-pictures calls it).
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { open, watched } from './browser.mjs';

const [origin, directory, widths, themes, state, ...pages] = process.argv.slice(2);
mkdirSync(directory, { recursive: true });
const browser = await open();
const broken = state === 'broken';

async function shoot(theme, width) {
  const { context, page, noted } = await watched(browser, origin, { viewport: { width: Number(width), height: 900 }, colorScheme: theme });
  for (const one of pages) {
    const [name, path] = [one.slice(0, one.indexOf('=')), one.slice(one.indexOf('=') + 1)];
    await page.goto(origin + path);
    await page.waitForFunction(() => document.querySelector('main h1, main .problem, main .card') && !document.querySelector('main .waiting'), undefined, { timeout: 30_000 }).catch(() => {});
    await page.waitForTimeout(900);
    if (broken) {
      await context.setOffline(true);
      await page.waitForSelector('.banner.bad', { timeout: 30_000 }).catch(() => {});
      await page.waitForTimeout(400);
    }
    await page.screenshot({ path: join(directory, `${name}-${state}-${width}-${theme}.png`), fullPage: true });
    const wide = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
    if (broken) await context.setOffline(false);
    if (wide > 0 || noted.errors.length || noted.foreign.length) console.log(name, state, width, theme, JSON.stringify({ wide, ...noted }));
    noted.errors.length = noted.foreign.length = 0;
  }
  await context.close();
}

await Promise.all(themes.split(',').flatMap((theme) => widths.split(',').map((width) => shoot(theme, width))));
await browser.close();
