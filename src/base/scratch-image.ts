/** Stands for the image of a container without one: its root is empty at first. */
export const SCRATCH_IMAGE = "scratch";
