/** A function: gets the payload of the call and its context, and returns the result. */
export async function handler(payload, context) {
  const name = payload?.name ?? "world";
  console.log(`greeting ${name} in invocation ${context.invocation_id}`);
  return { message: `Hello, ${name}!`, remaining_ms: Math.round(context.remaining_ms()) };
}
