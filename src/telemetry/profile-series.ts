/** Series of the profiles of this node. Their names are those of its recipes, which the operator alone adds. */
import { Counter, Gauge, type Registry } from "prom-client";
import { shared } from "./machine-series.ts";

export interface ProfileSample {
  readonly profile: string;
  readonly release_count: number;
  readonly disk_bytes: number;
  readonly updates: { readonly count: number; readonly security_count: number } | null;
}

/** Returns the counter of builds. */
export function addProfileSeries(registry: Registry, read: () => readonly ProfileSample[]): Counter<string> {
  const registers = [registry];
  // A read looks at several files for each profile.
  const samples = shared(async () => read());
  const gauge = (name: string, help: string, sampled: (sample: ProfileSample) => number | null) => {
    const series: Gauge = new Gauge({
      ...{ name, help, registers, labelNames: ["profile"] },
      async collect() {
        const all = await samples();
        series.reset();
        for (const sample of all) {
          const value = sampled(sample);
          if (value !== null) series.set({ profile: sample.profile }, value);
        }
      },
    });
  };
  gauge("hearth_profile_releases", "Releases of a profile in the image store.", ({ release_count }) => release_count);
  gauge("hearth_profile_disk_bytes", "Bytes of the own layers of all releases.", ({ disk_bytes }) => disk_bytes);
  gauge("hearth_profile_updates", "Packages of latest with a newer version, if it was asked.", ({ updates }) => {
    return updates?.count ?? null;
  });
  gauge("hearth_profile_security_updates", "Those of them from a security archive.", ({ updates }) => {
    return updates?.security_count ?? null;
  });
  return new Counter({
    name: "hearth_profile_builds_total",
    help: "Ended builds of profiles, by profile and outcome.",
    labelNames: ["profile", "outcome"],
    registers,
  });
}
