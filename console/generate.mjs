// Types of the API, out of docs/openapi.json: what a page asks for and gets is checked when it is compiled.
import { readFileSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const here = dirname(fileURLToPath(import.meta.url));
const api = JSON.parse(readFileSync(join(here, '../docs/openapi.json'), 'utf8'));

const word = (name) => name.replace(/\W+/g, '_');

function type(schema) {
  if (!schema || Object.keys(schema).length === 0) return 'unknown';
  if (schema.$ref) return word(schema.$ref.split('/').pop());
  if (schema.enum) return schema.enum.map((value) => JSON.stringify(value)).join(' | ');
  if (schema.const !== undefined) return JSON.stringify(schema.const);
  const choices = schema.anyOf ?? schema.oneOf;
  if (choices) return choices.map(type).join(' | ');
  if (schema.type === 'array') return schema.prefixItems ? `[${schema.prefixItems.map(type).join(', ')}]` : `(${type(schema.items)})[]`;
  if (schema.type === 'object' || schema.properties) {
    if (!schema.properties) return `Record<string, ${type(schema.additionalProperties === false ? undefined : schema.additionalProperties)}>`;
    const needed = new Set(schema.required ?? []);
    const rows = Object.entries(schema.properties).map(([name, value]) => `${JSON.stringify(name)}${needed.has(name) ? '' : '?'}: ${type(value)}`);
    return `{ ${rows.join('; ')} }`;
  }
  return { string: 'string', integer: 'number', number: 'number', boolean: 'boolean', null: 'null' }[schema.type] ?? 'unknown';
}

const lines = ['// Written by generate.mjs from docs/openapi.json. Change the API, not this file.', ''];
for (const [name, schema] of Object.entries(api.components.schemas)) lines.push(`export type ${word(name)} = ${type(schema)};`);
for (const method of ['get', 'post', 'put', 'patch', 'delete']) {
  lines.push('', `export interface ${method[0].toUpperCase()}${method.slice(1)} {`);
  for (const [path, item] of Object.entries(api.paths)) {
    const operation = item[method];
    if (!operation) continue;
    const good = Object.entries(operation.responses).find(([status]) => status.startsWith('2'));
    const content = good?.[1].content?.['application/json'];
    lines.push(`  ${JSON.stringify(path)}: ${content ? type(content.schema) : 'void'};`);
  }
  lines.push('}');
}
writeFileSync(join(here, 'src/api/types.ts'), `${lines.join('\n')}\n`);
