/** The runtimes as the forms explain them. */

/**
 * @typedef {object} Runtime
 * @property {string} name
 * @property {string} title
 * @property {string} handler an example
 * @property {boolean} needsCode
 * @property {string} hint
 */

/** @type {readonly [Runtime, ...Runtime[]]} */
export const RUNTIMES = [
  {
    name: "shell",
    title: "shell: a command line",
    handler: 'echo "hello, $(cat)"',
    needsCode: false,
    hint: "A command line for /bin/sh -c; the payload is its standard input. With code, its directory is /function.",
  },
  {
    name: "nodejs",
    title: "nodejs: JavaScript, TypeScript",
    handler: "index.mjs#handler",
    needsCode: true,
    hint: "file.mjs#export: a function (payload, context) of the code. This runtime needs code.",
  },
  {
    name: "python3",
    title: "python3: Python",
    handler: "main.py:handler",
    needsCode: true,
    hint: "file.py:function: a function (payload, context) of the code. This runtime needs code.",
  },
  {
    name: "custom",
    title: "custom: an HTTP server",
    handler: "./server",
    needsCode: false,
    hint: "A command that listens on $PORT and answers POST / for each call. It runs in the directory of the code.",
  },
];

/** @param {string} name @returns {Runtime} */
export const runtimeOf = (name) => RUNTIMES.find((runtime) => runtime.name === name) ?? RUNTIMES[0];
