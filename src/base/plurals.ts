/** Counted nouns of messages: `1 entry`, `2 entries`, `0 containers`. */

export function counted(count: number, one: string, many = `${one}s`): string {
  return `${count} ${count === 1 ? one : many}`;
}
