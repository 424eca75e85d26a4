// node test/picture.mjs URL OUT [WIDTH] [dark|light] [full]: what one page looks like, for a person to look at.
import { open, watched } from './browser.mjs';

const [url, out, width = '1440', theme = 'dark', wait = '1500'] = process.argv.slice(2);
const browser = await open();
const { page, noted } = await watched(browser, new URL(url).origin, { viewport: { width: Number(width), height: 900 }, colorScheme: theme });
await page.goto(url);
await page.waitForTimeout(Number(wait));
await page.screenshot({ path: out, fullPage: true });
const wide = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
console.log(JSON.stringify({ ...noted, wider_than_the_window: wide }));
await browser.close();
