// Where this broker is, as a person types it: for the commands that dialogs show (W3).
import { cluster } from './session.ts';

export function kafka(): string {
  const known = cluster.value;
  const me = known?.brokers.find((broker) => broker.id === known.answered_by);
  return (me?.kafka ?? 'localhost:9092').replace(/^(127\.0\.0\.1|0\.0\.0\.0|\[::1?\]|::1)(?=:\d)/, 'localhost');
}

export const http = (): string => location.origin;

// Flags that a command needs when the broker is not at its usual ports.
export const viaKafka = (): string => (kafka() === 'localhost:9092' ? '' : ` -b ${kafka()}`);
export const viaHttp = (): string => (http() === 'http://localhost:9324' ? '' : ` --url ${http()}`);
