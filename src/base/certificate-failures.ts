/** Output of programs that refuse a certificate, which behind a proxy is the same fault whatever program tells it. */

/**
 * Words of OpenSSL's verification, as node and npm (codes), curl, git and wget (sentences), and Python's ssl have them, and of Go.
 * https://docs.openssl.org/master/man3/X509_STORE_CTX_get_error/, https://nodejs.org/api/tls.html#x509-certificate-error-codes
 */
const UNTRUSTED =
  /SELF_SIGNED_CERT|UNABLE_TO_GET_ISSUER_CERT|UNABLE_TO_VERIFY_LEAF_SIGNATURE|CERTIFICATE_VERIFY_FAILED|self[- ]signed certificate|unable to get (?:local )?issuer certificate|unable to verify the first certificate|signed by unknown authority/i;

/** Characters of the longest of these words, and more. */
const WORDS_LENGTH_MAX = 64;

/** The remedy, for those who build: the setting is the operator's. */
export const UNTRUSTED_HINT =
  "an untrusted certificate ended it; the operator names files of certificate authorities for builds in HEARTH_BUILD_CA_FILES";

export function namesUntrusted(output: string): boolean {
  return UNTRUSTED.test(output);
}

/** Looks for them in output that comes in pieces. */
export class UntrustedWatch {
  #rest = "";
  isFound = false;

  see(piece: string): void {
    const text = this.#rest + piece;
    this.isFound ||= namesUntrusted(text);
    this.#rest = text.slice(-WORDS_LENGTH_MAX);
  }
}
