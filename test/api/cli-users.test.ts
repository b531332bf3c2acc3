/** Users through the `hearth` command: a password becomes a key of this machine, and signing out revokes it. */
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { Commands } from "../support/command.ts";
import { Daemon } from "../support/daemon.ts";
import { PASSWORD } from "../support/people.ts";

const daemon = new Daemon();
const place: { commands: Commands | null } = { commands: null };
const commands = (): Commands => {
  if (place.commands === null) throw new Error("not there yet");
  return place.commands;
};

beforeAll(async () => {
  await daemon.start({ HEARTH_CELLS: "0", HEARTH_USERS: "on" });
  place.commands = new Commands({});
});
afterAll(async () => {
  place.commands?.dispose();
  await daemon.dispose();
});

const keysOf = async (email: string) => {
  const { users } = (await daemon.call("GET", "/api/users")).body;
  const { tenant_id } = users.find((user: { email: string }) => user.email === email);
  return (await daemon.call("GET", `/api/tenants/${tenant_id}/api-keys`)).body.api_keys;
};

describe("hearth", () => {
  it("registers a user, who is signed in by a key that the profile keeps", async () => {
    const made = await commands().run(["register", "ada@example.com", "--url", daemon.url, "--name", "Ada"], {
      stdin: `${PASSWORD}\n`,
    });
    expect(made).toMatchObject({
      code: 0,
      out: `ada@example.com is signed in; profile default is in use for 90 days: ${daemon.url}\n`,
    });
    const me = await commands().run(["whoami"]);
    expect(me.out).toMatch(
      /^tenant +ten_\w+\nkey +key_\w+\nscopes +read, invoke, write, admin\nreaches +the whole tenant\n$/,
    );
    const [key, ...others] = await keysOf("ada@example.com");
    expect([key.name.startsWith("hearth on "), key.expires_at > key.created_at, others]).toEqual([true, true, []]);
    expect((await commands().run(["logout"])).out).toBe("profile default is removed, and its key is revoked\n");
    expect(await keysOf("ada@example.com")).toEqual([]);
    expect((await commands().run(["logout"])).code).not.toBe(0);
  });

  it("signs in with a password into a profile of its own, and says what is wrong", async () => {
    const login = (password: string) =>
      commands().run(["login", "work", "--url", daemon.url, "--email", "ada@example.com"], { stdin: `${password}\n` });
    const wrong = await login("wrong horse battery");
    expect(wrong).toMatchObject({ code: 1, err: expect.stringContaining("wrong e-mail address or password") });
    expect((await login(PASSWORD)).code).toBe(0);
    const list = JSON.parse((await commands().run(["profile", "list", "--json"])).out);
    expect(list.profiles).toEqual([{ name: "work", url: daemon.url, current: true }]);
    const taken = await commands().run(["register", "ADA@example.com", "--url", daemon.url], {
      stdin: `${PASSWORD}\n`,
    });
    expect(taken).toMatchObject({ code: 1, err: expect.stringContaining("[NAME_TAKEN]") });
    // A key that somebody else has revoked does not keep the profile.
    const [{ id, tenant_id }] = await keysOf("ada@example.com");
    await daemon.call("DELETE", `/api/tenants/${tenant_id}/api-keys/${id}`);
    expect((await commands().run(["logout", "work"])).code).toBe(0);
  });

  it("makes a key of a container, which whoami shows", async () => {
    const stdin = `${PASSWORD}\n`;
    expect((await commands().run(["login", "--url", daemon.url, "--email", "ada@example.com"], { stdin })).code).toBe(
      0,
    );
    expect((await commands().run(["run", "-d", "--name", "box"])).code).toBe(0);
    const made = await commands().run(["keys", "create", "agent", "--container", "box", "--scopes", "read,invoke"]);
    expect(made.code).toBe(0);
    const env = { HEARTH_URL: daemon.url, HEARTH_KEY: made.out.trim() };
    expect((await commands().run(["whoami"], { env })).out).toMatch(/scopes +read, invoke\nreaches +ctr_\w+\n$/);
    expect((await commands().run(["exec", "box", "--", "echo", "hi"], { env })).out).toBe("hi\n");
    expect((await commands().run(["keys", "list"], { env })).err).toContain("[FORBIDDEN]");
    expect((await commands().run(["keys", "list"])).out).toContain("agent");
    expect((await commands().run(["rm", "-f", "box"])).code).toBe(0);
    expect((await commands().run(["whoami"], { env })).code).not.toBe(0);
  });
});
