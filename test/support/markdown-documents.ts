/** The documents of the project: every Markdown file, with its prose, fenced blocks, links and headings. */
import { PROJECT_FILES, readText } from "./project-files.ts";

interface FencedBlock {
  readonly language: string;
  readonly text: string;
}

export interface MarkdownDocument {
  /** Relative to the checkout. */
  readonly path: string;
  readonly text: string;
  /** The text without fenced blocks. */
  readonly prose: string;
  readonly blocks: readonly FencedBlock[];
  /** Targets of links and images. */
  readonly links: readonly string[];
  /** Ids of headings, as GitHub makes them. */
  readonly anchors: readonly string[];
}

const FENCE = /^```(\w*)\n([\s\S]*?)^```$/gm;

function anchorOf(heading: string): string {
  return heading
    .toLowerCase()
    .replace(/[^\p{L}\p{N} _-]/gu, "")
    .replaceAll(" ", "-");
}

function read(path: string): MarkdownDocument {
  const text = readText(path);
  const prose = text.replace(FENCE, "");
  return {
    path,
    text,
    prose,
    blocks: [...text.matchAll(FENCE)].map(([, language = "", body = ""]) => ({ language, text: body })),
    links: [...prose.matchAll(/\]\(([^)\s]+)\)/g)].map(([, target = ""]) => target),
    anchors: [...prose.matchAll(/^#+ (.+)$/gm)].map(([, heading = ""]) => anchorOf(heading)),
  };
}

export const DOCUMENTS: readonly MarkdownDocument[] = PROJECT_FILES.filter((path) => path.endsWith(".md")).map(read);

export const documentAt = (path: string): MarkdownDocument => {
  const found = DOCUMENTS.find((one) => one.path === path);
  if (found === undefined) throw new Error(`no document ${path}`);
  return found;
};

/** README and the guides: the documents whose commands readers paste. */
export const PASTED: readonly MarkdownDocument[] = DOCUMENTS.filter(({ path }) =>
  /^README\.md$|^src\/docs\/guides\//.test(path),
);
