/** A scratch apt configuration: the machine's own mirror and keys, the newest suite, nothing shared with the system. */
import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";

const SUITE = "sid";
const KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg";

/** @typedef {{ uri: string, isDebian: boolean }} Source */

/**
 * The package sources that this machine uses, from both of apt's formats.
 *
 * @param {string} [etc]
 * @returns {Source[]}
 */
export function aptSources(etc = "/etc/apt") {
  const folder = join(etc, "sources.list.d");
  const files = [
    join(etc, "sources.list"),
    ...(existsSync(folder) ? readdirSync(folder).map((f) => join(folder, f)) : []),
  ];
  return files
    .filter((file) => /\.(list|sources)$/.test(file) && existsSync(file))
    .flatMap((file) => parse(readFileSync(file, "utf8"), file.endsWith(".sources")));
}

/**
 * @param {string} text
 * @param {boolean} deb822
 * @returns {Source[]}
 */
function parse(text, deb822) {
  const lines = text.split("\n").filter((line) => !line.startsWith("#"));
  const uris = deb822
    ? lines.flatMap((line) => /^URIs:\s*(.+)$/i.exec(line)?.[1]?.trim().split(/\s+/) ?? [])
    : lines.flatMap((line) => /^deb\s+(?:\[[^\]]*\]\s+)?(\S+)/.exec(line)?.[1] ?? []);
  // Every Debian mirror ends so; the security archive has another folder and does not carry the newest suite.
  return uris.map((uri) => ({ uri, isDebian: /^https?:.*\/debian\/?$/.test(uri) }));
}

/**
 * Writes the configuration into `scratch` and returns its path.
 *
 * @param {string} scratch
 * @param {Source} mirror
 */
export function sidConfiguration(scratch, mirror) {
  for (const folder of ["lists/partial", "cache/archives/partial", "parts"])
    mkdirSync(join(scratch, folder), { recursive: true });
  writeFileSync(join(scratch, "status"), "");
  writeFileSync(
    join(scratch, "sources.list"),
    `deb [signed-by=${KEYRING}] ${mirror.uri} ${SUITE} main\n`,
  );
  const file = join(scratch, "apt.conf");
  writeFileSync(
    file,
    [
      `Dir::State "${scratch}";`,
      `Dir::State::status "${scratch}/status";`,
      `Dir::Cache "${scratch}/cache";`,
      `Dir::Etc::sourcelist "${scratch}/sources.list";`,
      `Dir::Etc::sourceparts "${scratch}/parts";`,
      `Dir::Etc::preferencesparts "${scratch}/parts";`,
      // A mirror may be a day behind; the signature is checked all the same.
      `Acquire::Check-Valid-Until "false";`,
      `Acquire::Languages "none";`,
      `Acquire::IndexTargets::deb::DEP-11::DefaultEnabled "false";`,
      // As root apt would hand the download to its own user, who may not enter this folder.
      `APT::Sandbox::User "root";`,
    ].join("\n"),
  );
  return file;
}
