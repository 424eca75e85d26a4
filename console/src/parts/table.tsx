// A table that is a table; where there is no room for its columns, each row is read as a card, with the column's name before each value (W12).
import type { ComponentChildren } from 'preact';
import { useLayoutEffect, useRef } from 'preact/hooks';

const narrow = matchMedia('(max-width: 640px)');

export function Table({ children, class: kind = 'moves', after }: { children: ComponentChildren; class?: string; after?: ComponentChildren }) {
  const element = useRef<HTMLTableElement>(null);
  useLayoutEffect(() => {
    if (!narrow.matches) return;
    const table = element.current!;
    const names = [...(table.tHead?.rows[0]?.cells ?? [])].map((cell) => (cell.querySelector('.hidden') ? '' : cell.textContent!.replace(/ [↑↓]$/, '')));
    for (const row of table.tBodies[0]?.rows ?? []) [...row.cells].forEach((cell, place) => { if (names[place]) cell.dataset['label'] = names[place]; });
  });
  return <div class={`scroll ${kind}`}><table ref={element} class="folds">{children}</table>{after}</div>;
}
