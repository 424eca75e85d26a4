// What SCRAM keeps of a password (RFC 5802), made in the browser: the password itself goes nowhere. Browsers have the means only for pages that came
// over TLS or from this very machine.
export const canSalt = (): boolean => typeof crypto !== 'undefined' && crypto.subtle !== undefined;

const HASHES: [string, string, number][] = [['SCRAM-SHA-256', 'SHA-256', 256], ['SCRAM-SHA-512', 'SHA-512', 512]];
const ITERATIONS = 8_192;
const text = (bytes: ArrayBuffer | Uint8Array): string => btoa(String.fromCharCode(...new Uint8Array(bytes)));

async function hmac(key: ArrayBuffer, words: string, hash: string): Promise<ArrayBuffer> {
  const made = await crypto.subtle.importKey('raw', key, { name: 'HMAC', hash }, false, ['sign']);
  return crypto.subtle.sign('HMAC', made, new TextEncoder().encode(words));
}

export interface Scram { salt: string; iterations: number; stored_key: string; server_key: string }

export async function scramOf(password: string): Promise<Record<string, Scram>> {
  const key = await crypto.subtle.importKey('raw', new TextEncoder().encode(password), 'PBKDF2', false, ['deriveBits']);
  const made: Record<string, Scram> = {};
  for (const [mechanism, hash, bits] of HASHES) {
    const salt = crypto.getRandomValues(new Uint8Array(16));
    const salted = await crypto.subtle.deriveBits({ name: 'PBKDF2', hash, salt, iterations: ITERATIONS }, key, bits);
    const stored = await crypto.subtle.digest(hash, await hmac(salted, 'Client Key', hash));
    made[mechanism] = { salt: text(salt), iterations: ITERATIONS, stored_key: text(stored), server_key: text(await hmac(salted, 'Server Key', hash)) };
  }
  return made;
}

export function madeUp(): string {
  return text(crypto.getRandomValues(new Uint8Array(18))).replaceAll('+', '-').replaceAll('/', '_');
}
