// node test/pictures.mjs ORIGIN DIRECTORY page=path …: pages at several widths, dark and light, for a person to look at.
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { open, watched } from './browser.mjs';

const [origin, directory, widths, themes, ...pages] = process.argv.slice(2);
mkdirSync(directory, { recursive: true });
const browser = await open();
for (const theme of themes.split(',')) {
  for (const width of widths.split(',')) {
    const { context, page, noted } = await watched(browser, origin, { viewport: { width: Number(width), height: 900 }, colorScheme: theme });
    for (const one of pages) {
      const [name, path] = [one.slice(0, one.indexOf('=')), one.slice(one.indexOf('=') + 1)];
      await page.goto(origin + path);
      await page.waitForTimeout(2500);
      await page.screenshot({ path: join(directory, `${name}-${width}-${theme}.png`), fullPage: false });
      const wide = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
      if (wide > 0 || noted.errors.length || noted.foreign.length) console.log(name, width, theme, JSON.stringify({ wide, ...noted }));
      noted.errors.length = noted.foreign.length = 0;
    }
    await context.close();
  }
}
await browser.close();
