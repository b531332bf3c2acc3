/**
 * Handlers that answer by a callback, their third parameter, as those of AWS Lambda may. The first of callback, returned
 * value, and error counts.
 */
import { RuntimeError } from "./errors.mjs";

/** Errors of a callback may be of any type. */
const isPresent = (error) => error !== null && error !== undefined;

/**
 * Returns the handler with two parameters. `undefined` is no answer of it: it then waits for the callback, and an async
 * one that has not called it by then fails.
 */
export function withCallback(handler) {
  return (payload, context) =>
    new Promise((resolve, reject) => {
      const callback = (error, value) => (isPresent(error) ? reject(error) : resolve(value));
      const returned = handler(payload, context, callback);
      if (typeof returned?.then !== "function") {
        if (returned !== undefined) resolve(returned);
        return;
      }
      returned.then((value) => {
        if (value !== undefined) resolve(value);
        else reject(new RuntimeError("CallbackNotCalled", NOT_CALLED));
      }, reject);
    });
}

const NOT_CALLED =
  "the handler has a third parameter, its callback, and returned nothing before it called it: return the result, or remove the parameter";
