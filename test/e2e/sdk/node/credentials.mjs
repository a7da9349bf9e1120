// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// credentials gets credentials with the official JavaScript SDKs of the clouds,
// using only their default credential chains, and prints a JSON line for each.
// The contract of all SDK programs is in ../README.md.

import { createHash } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { parseArgs } from "node:util";

// Limits each attempt, including the SDK's own retries.
const TIMEOUT_SECONDS = 180;

const OK = 0, FAILED = 1, USAGE = 2;

// Each SDK is loaded on first use, because loading takes time.
const CLOUDS = {
  async aws() {
    const { fromNodeProviderChain } = await import("@aws-sdk/credential-providers");
    const { sessionToken, expiration } = await fromNodeProviderChain()();
    return { secret: sessionToken, expires: expiration };
  },
  async azure() {
    const { DefaultAzureCredential } = await import("@azure/identity");
    const token = await new DefaultAzureCredential().getToken("https://management.azure.com/.default");
    return { secret: token.token, expires: new Date(token.expiresOnTimestamp) };
  },
  async gcp() {
    const { GoogleAuth } = await import("google-auth-library");
    const auth = new GoogleAuth({ scopes: "https://www.googleapis.com/auth/cloud-platform" });
    const client = await auth.getClient();
    const { token } = await client.getAccessToken();
    const expires = client.credentials.expiry_date;
    return { secret: token, expires: expires && new Date(expires) };
  },
};

// parse returns the clouds and the options; it throws an error for wrong usage.
function parse(args) {
  const { values, positionals } = parseArgs({
    args,
    options: { every: { type: "string" }, forever: { type: "boolean", default: false } },
    allowPositionals: true,
  });
  const every = values.every === undefined ? 0 : milliseconds(values.every);
  if (every && values.forever) {
    throw new Error("--every and --forever are mutually exclusive");
  }
  if (positionals.length === 0) {
    throw new Error(`no cloud given, want any of ${Object.keys(CLOUDS).join(", ")}`);
  }
  for (const cloud of positionals) {
    if (!Object.hasOwn(CLOUDS, cloud)) {
      throw new Error(`unknown cloud "${cloud}", want one of ${Object.keys(CLOUDS).join(", ")}`);
    }
  }
  return { every, forever: values.forever, clouds: positionals };
}

// milliseconds parses a duration in Go's format, such as 5s or 1m30s.
function milliseconds(duration) {
  const units = { ms: 1, s: 1_000, m: 60_000, h: 3_600_000 };
  let sum = 0;
  if (/^([\d.]+(ms|s|m|h))+$/.test(duration)) {
    for (const [, number, unit] of duration.matchAll(/([\d.]+)(ms|s|m|h)/g)) {
      sum += Number(number) * units[unit];
    }
  }
  if (!(sum > 0)) {
    throw new Error(`--every: got "${duration}", want a positive duration such as 5s`);
  }
  return sum;
}

// attempt returns the line for one cloud.
async function attempt(cloud) {
  const timer = new AbortController();
  const timeout = sleep(TIMEOUT_SECONDS * 1000, undefined, { signal: timer.signal }).then(() => {
    throw new Error(`no response within ${TIMEOUT_SECONDS} s`);
  });
  try {
    const { secret, expires } = await Promise.race([CLOUDS[cloud](), timeout]);
    if (!secret) {
      throw new Error("got a credential without a token");
    }
    return {
      cloud,
      credential: createHash("sha256").update(secret).digest("hex"),
      expires: expires ? expires.toISOString().replace(/\.\d+Z$/, "Z") : undefined,
    };
  } catch (error) {
    return { cloud, error: textOf(error) };
  } finally {
    timer.abort();
    timeout.catch(() => {}); // aborted: ignore the error
  }
}

// textOf returns the messages of an error and its causes, because fetch reports
// the actual error only as a cause.
function textOf(error) {
  const texts = [String(error)];
  for (let e = error?.cause; e instanceof Error && texts.length < 10; e = e.cause) {
    texts.push(String(e));
  }
  return texts.join(": ");
}

async function round(clouds) {
  let ok = true;
  for (const cloud of clouds) {
    const line = await attempt(cloud);
    ok &&= line.error === undefined;
    await new Promise((written) => process.stdout.write(JSON.stringify(line) + "\n", written));
  }
  return ok;
}

async function main(args) {
  let options;
  try {
    options = parse(args);
  } catch (error) {
    console.error(`credentials: ${error.message}\nusage: credentials [--every DURATION] [--forever] CLOUD...`);
    return USAGE;
  }
  const { every, forever, clouds } = options;
  process.once("SIGTERM", () => process.exit(every || forever ? OK : FAILED));
  while (await round(clouds)) {
    if (forever) {
      setInterval(() => {}, 2 ** 30); // keeps the process until SIGTERM
      await new Promise(() => {});
    }
    if (!every) {
      return OK;
    }
    await sleep(every);
  }
  return FAILED;
}

// Exit even if an SDK left something open.
process.exit(await main(process.argv.slice(2)));
