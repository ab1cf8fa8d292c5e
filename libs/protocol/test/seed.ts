/* The seed of the property tests: printed always, given by SEED to see a failure again. */

export const seed: number = Number(process.env["SEED"] ?? Math.floor(Math.random() * 2 ** 31));

console.log(`property tests of the protocol: SEED=${seed}`);
