// Why something is behind (5.6): causes with their evidence and what to do next, as the server found them.
import type { Explained } from '../api/types.ts';
import { viaHttp, viaKafka } from '../state/places.ts';
import { Age, Command } from './ui.tsx';
import { visible } from './words.ts';

// Where the broker is, for a command that was made where nobody knows how it is reached.
const at = (command: string): string => (/^headrace (topic|group)\b/.test(command) ? `${command}${viaKafka()}` : /^headrace (queue|webhook|schedule)\b/.test(command) ? `${command}${viaHttp()}` : command);

export function Findings({ sentence, findings, command }: { sentence: string; findings: Explained[]; command: string }) {
  return (
    <>
      {findings.length === 0 && <p>{visible(sentence)}</p>}
      {findings.map((finding, place) => (
        <section key={`${finding.cause} ${place}`} class="card stack">
          <h3>{place + 1}. {visible(finding.sentence)}</h3>
          <dl class="facts">
            <dt>Seen</dt><dd class="mono">{visible(finding.evidence)}</dd>
            {finding.since_ms !== null && <><dt>Since</dt><dd><Age ms={finding.since_ms} /></dd></>}
            <dt>Next</dt><dd>{visible(finding.next_step)}</dd>
          </dl>
          {finding.command && <Command text={at(finding.command)} />}
        </section>
      ))}
      <Command text={command} />
    </>
  );
}
