/** Lists of the API that are read to their end, page after page. */
import { LIMITS } from "../../base/limits.ts";

interface PageAnswer {
  readonly next_cursor: string | null;
}

/**
 * The list `name` as one answer: its newest `limit` entries, all of them unless `limit` is given, at most
 * `cli_list_pages_max` pages. `next_cursor` is null where nothing follows.
 */
export async function readList<Name extends string, Item, Answer extends PageAnswer & Record<Name, readonly Item[]>>(
  name: Name,
  limit: number | undefined,
  read: (page: { readonly limit?: number; readonly cursor?: string }) => Promise<Answer>,
): Promise<Answer> {
  const items: Item[] = [];
  let cursor: string | null = null;
  for (let page_count = 1; ; page_count++) {
    const answer = await read({
      ...(limit === undefined ? {} : { limit: limit - items.length }),
      ...(cursor === null ? {} : { cursor }),
    });
    items.push(...answer[name]);
    cursor = answer.next_cursor;
    const isLast = cursor === null || page_count >= LIMITS.cli_list_pages_max || items.length >= (limit ?? Infinity);
    if (isLast) return { ...answer, [name]: items };
  }
}
