// JSON as a tree, read by ourselves: numbers stay as they were written, and what is too large or too deep ends early and says so (W21).

export type Node =
  | { kind: 'object'; rows: [string, Node][]; cut: boolean }
  | { kind: 'array'; rows: Node[]; cut: boolean }
  | { kind: 'string'; text: string }
  | { kind: 'literal'; text: string };

const MOST_NODES = 10_000;
const MOST_DEEP = 100;

class NotJson extends Error {}

const SPACE = /[ \t\r\n]*/y;
const STRING = /"(?:[^"\\\u0000-\u001f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"/y;
const LITERAL = /-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null/y;

// Undefined when it is not JSON, or only a bare word or number: that is better shown as text.
export function tree(text: string): Node | undefined {
  let at = 0;
  let nodes = 0;
  const take = (pattern: RegExp): string | undefined => {
    pattern.lastIndex = at;
    const found = pattern.exec(text);
    if (!found) return undefined;
    at += found[0].length;
    return found[0];
  };
  const skip = (): void => void take(SPACE);
  const need = (character: string): void => {
    skip();
    if (text[at] !== character) throw new NotJson();
    at += 1;
  };
  const string = (): string => {
    const raw = take(STRING);
    if (raw === undefined) throw new NotJson();
    return JSON.parse(raw) as string;
  };
  const value = (depth: number): Node => {
    skip();
    nodes += 1;
    if (depth > MOST_DEEP) throw new NotJson();
    const first = text[at];
    if (first === '{' || first === '[') {
      at += 1;
      const rows: [string, Node][] = [];
      const items: Node[] = [];
      const end = first === '{' ? '}' : ']';
      skip();
      if (text[at] === end) at += 1;
      else
        for (;;) {
          if (nodes > MOST_NODES) return first === '{' ? { kind: 'object', rows, cut: true } : { kind: 'array', rows: items, cut: true };
          skip();
          if (first === '{') {
            const name = string();
            need(':');
            rows.push([name, value(depth + 1)]);
          } else items.push(value(depth + 1));
          if (nodes > MOST_NODES) continue;
          skip();
          if (text[at] === ',') at += 1;
          else {
            need(end);
            break;
          }
        }
      return first === '{' ? { kind: 'object', rows, cut: false } : { kind: 'array', rows: items, cut: false };
    }
    if (first === '"') return { kind: 'string', text: string() };
    const literal = take(LITERAL);
    if (literal === undefined) throw new NotJson();
    return { kind: 'literal', text: literal };
  };
  try {
    const found = value(0);
    skip();
    if (nodes <= MOST_NODES && at !== text.length) return undefined;
    return found.kind === 'object' || found.kind === 'array' ? found : undefined;
  } catch {
    return undefined;
  }
}

// Written out again with two spaces, numbers as they were.
export function pretty(node: Node, indent = ''): string {
  const deeper = `${indent}  `;
  switch (node.kind) {
    case 'string': return JSON.stringify(node.text);
    case 'literal': return node.text;
    case 'array': return node.rows.length ? `[\n${node.rows.map((one) => deeper + pretty(one, deeper)).join(',\n')}\n${indent}]` : '[]';
    case 'object': return node.rows.length ? `{\n${node.rows.map(([name, one]) => `${deeper}${JSON.stringify(name)}: ${pretty(one, deeper)}`).join(',\n')}\n${indent}}` : '{}';
  }
}
