/** The check of one layer while it streams through a registry gateway, as the gateway uses it. */

/** Takes a piece of the uncompressed layer. Its memory is freed by `onSent`, which also asks for more. */
export type TakePiece = (bytes: Uint8Array, onSent: () => void) => void;

/** Checks one layer as it streams. The caller ends it by `end` or by `abort`. */
export interface LayerCheck {
  /** Resolves once the check takes the next chunk. The bytes stay the caller's, who may send them on. */
  write(chunk: Uint8Array): Promise<void>;
  /** Resolves when the layer passed, after its last piece was given out. Rejects with the AppError that names what is wrong. */
  end(): Promise<{
    readonly diff_id: string;
    readonly unpacked_bytes: number;
    /** Nodes below /dev that whoever unpacks the layer takes away. */
    readonly skipped_devices: number;
  }>;
  abort(): void;
}

export interface LayerChecker {
  /**
   * `unpacked_bytes_max`: bound of the layer's decompressed tar. `take`: is given that tar, piece by piece, while it is checked;
   * null: nobody needs it.
   */
  open(of: {
    readonly digest: string;
    readonly size_bytes: number;
    readonly media_type: string;
    readonly unpacked_bytes_max: number;
    readonly take: TakePiece | null;
  }): LayerCheck;
}
