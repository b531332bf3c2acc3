/** Addresses of the network of instances and containers. */
import { describe, expect, it } from "vitest";
import { instanceResolvConf } from "../../src/engine/dns/resolv-conf.ts";
import { foreignLink, formatAddress, parseSubnet } from "../../src/engine/network/subnet.ts";

describe("addresses", () => {
  it("are counted from the network's base", () => {
    const subnet = parseSubnet("10.42.0.0/16");
    expect(subnet).toEqual({ base: 0x0a2a0000, prefix_length: 16, size: 65_533 });
    expect(formatAddress(subnet.base + 258)).toBe("10.42.1.2");
  });

  it.each(["10.42.0.1/16", "10.300.0.0/16", "10.42.0.16/20"])("refuse %s, which is no network's base", (text) => {
    expect(() => parseSubnet(text)).toThrow(/base address/);
  });

  it.each(["0.0.0.0/16", "127.0.0.0/16", "169.254.0.0/16", "224.0.0.0/16", "255.255.0.0/16"])(
    "refuse %s, whose addresses no host has",
    (text) => {
      expect(() => parseSubnet(text)).toThrow(/addresses hosts may have/);
    },
  );

  it("of a subnet are nobody else's, though its own may lie in a wider network", () => {
    const routes = [
      "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT",
      "eth0\t00000000\t010200C0\t0003\t0\t0\t0\t00000000\t0\t0\t0",
      "eth0\t000200C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0",
      "vpn0\t0000000A\t00000000\t0001\t0\t0\t0\t000000FF\t0\t0\t0",
      "own0\t00002A0A\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0",
      "",
    ].join("\n");
    const foreign = (subnet: string) => foreignLink(routes, parseSubnet(subnet), (link) => link === "own0");
    expect(["10.42.0.0/16", "10.43.0.0/16"].map(foreign)).toEqual([null, null]);
    expect(["192.0.2.0/24", "192.0.0.0/16"].map(foreign)).toEqual(["eth0", "eth0"]);
  });

  it("of name servers that only the machine reaches are left out", () => {
    expect(instanceResolvConf("search a\nnameserver 127.0.0.53\nnameserver 9.9.9.9\nnameserver ::1\n")).toBe(
      "search a\nnameserver 9.9.9.9\n",
    );
  });
});
