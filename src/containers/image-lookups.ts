/** Finds the images that containers are made from, and the settings that these give them. */
import { KeyedMutex } from "../base/concurrency.ts";
import type { Engine } from "../engine/ports.ts";
import type { ResolvedImage, ResolveImage } from "./admission.ts";
import { checkDesktopCommand, DESKTOP_COMMAND, DESKTOP_USER, isDesktop } from "./desktop.ts";
import { imageSettings } from "./image-settings.ts";
import type { CreateContainer } from "./schema.ts";

interface FoundImage {
  readonly resolved: ResolvedImage;
  readonly image_id: string;
  readonly settings: ReturnType<typeof imageSettings>;
}

export class ImageLookups {
  readonly #engine: Pick<Engine, "images">;
  readonly #resolveImage: ResolveImage;
  /** Lookups of one tenant take turns: one that the store lacks costs a process each time. */
  readonly #turns = new KeyedMutex();

  constructor({
    engine,
    resolveImage,
  }: { readonly engine: Pick<Engine, "images">; readonly resolveImage: ResolveImage }) {
    this.#engine = engine;
    this.#resolveImage = resolveImage;
  }

  /** Throws INVALID_ARGUMENT for an unknown profile, NOT_FOUND for an image that the tenant or the store does not have. */
  async of(tenant_id: string, input: CreateContainer): Promise<FoundImage> {
    const { images } = this.#engine;
    const resolved = await this.#resolveImage(tenant_id, input.image, input.oci);
    const inTurn = <Result>(work: () => Promise<Result>) => this.#turns.run(tenant_id, work);
    const image_id = resolved.image_id ?? (await inTurn(() => images.find(resolved.reference))).id;
    const config = input.oci ? await inTurn(() => images.config(image_id)) : null;
    const settings = imageSettings(input, config);
    if (!isDesktop({ image: resolved.reference, release: resolved.release })) return { resolved, image_id, settings };
    checkDesktopCommand(input);
    const user = input.strict && (input.user ?? null) === null ? DESKTOP_USER : settings.user;
    return { resolved, image_id, settings: { ...settings, user, command: DESKTOP_COMMAND } };
  }
}
