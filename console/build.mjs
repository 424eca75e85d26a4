// Build the console into the Python package: `node build.mjs`, or `node build.mjs DIRECTORY` for somewhere else.
// The same sources give the same bytes: no dates, no machine names, and names that are hashes of the content.
import { build } from 'esbuild';
import { createHash } from 'node:crypto';
import { mkdirSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import { brotliCompressSync, constants, gzipSync } from 'node:zlib';

const here = dirname(fileURLToPath(import.meta.url));
const out = process.argv[2] ?? join(here, '../src/headrace/http/console/assets');
const made = join(here, 'node_modules/.made');

rmSync(made, { recursive: true, force: true });
await build({
  absWorkingDir: here,
  entryPoints: ['src/main.tsx'],
  outdir: made,
  bundle: true,
  splitting: true,
  format: 'esm',
  target: 'es2022',
  minify: true,
  legalComments: 'none',
  charset: 'utf8',
  jsx: 'automatic',
  jsxImportSource: 'preact',
  entryNames: '[name]-[hash]',
  chunkNames: '[name]-[hash]',
  logLevel: 'warning',
});

rmSync(out, { recursive: true, force: true });
mkdirSync(out, { recursive: true });

function keep(name, content) {
  writeFileSync(join(out, `${name}.gz`), gzipSync(content, { level: 9 }));
  const params = { [constants.BROTLI_PARAM_QUALITY]: 11, [constants.BROTLI_PARAM_SIZE_HINT]: content.length };
  writeFileSync(join(out, `${name}.br`), brotliCompressSync(content, { params }));
  return name;
}

const hashed = (name, content) => name.replace('.', `-${createHash('sha256').update(content).digest('hex').slice(0, 8)}.`);
const files = readdirSync(made).sort();
for (const file of files) if (file.endsWith('.js')) keep(file, readFileSync(join(made, file)));
const style = files.find((file) => file.endsWith('.css'));
const css = keep(style, readFileSync(join(made, style)));
const icon = readFileSync(join(here, 'src/icon.svg'));
const mark = keep(hashed('icon.svg', icon), icon);
const script = files.find((file) => /^main-.*\.js$/.test(file));
const page = readFileSync(join(here, 'src/index.html'), 'utf8')
  .replace('{script}', `/console/assets/${script}`)
  .replace('{style}', `/console/assets/${css}`)
  .replace('{icon}', `/console/assets/${mark}`);
writeFileSync(join(out, 'index.html'), page);

// What it was built from, so that a test without Node can see that the sources have changed since.
const sum = createHash('sha256');
const sources = readdirSync(join(here, 'src'), { recursive: true, withFileTypes: true })
  .filter((entry) => entry.isFile() && entry.name !== 'types.ts')
  .map((entry) => relative(here, join(entry.parentPath, entry.name)));
for (const file of [...sources, 'build.mjs', 'package-lock.json'].sort()) sum.update(`${file}\n`).update(readFileSync(join(here, file)));
writeFileSync(join(out, 'built-from'), `${sum.digest('hex')}\n`);
