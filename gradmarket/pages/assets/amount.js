// Amounts as people write them: "0.5 GRAD", "1e18 units", or a whole number of the token's smallest unit.
"use strict";
const Amounts = {
  // Returns a decimal string in the smallest unit; throws an Error that says how amounts are written.
  smallest(text, symbol, decimals) {
    const found = /^(\d+)(?:\.(\d+))?(?:e(\d{1,2}))?(?: (\S+))?$/.exec(text.trim()), [, whole, fraction = "", power = "0", unit = "units"] = found || [];
    const places = unit === symbol ? decimals + Number(power) : Number(power);
    if (!found || (unit !== symbol && unit !== "units") || fraction.length > places) {
      throw new Error(`"${text}" is no amount: write it like 0.5 ${symbol}, 1e18 units, or as a whole number of the smallest unit.`);
    }
    return BigInt(whole + fraction.padEnd(places, "0")).toString();
  },
  // Returns a job whose amounts are in the smallest unit, as the service reads them.
  inJob(job, symbol, decimals) {
    const written = /^\d+(\.\d+)?(e\d{1,2})?( \S+)?$/;
    const whole = (value) => {
      if (typeof value === "string") return written.test(value) && !/^\d+$/.test(value) ? Amounts.smallest(value, symbol, decimals) : value;
      if (Array.isArray(value)) return value.map(whole);
      return value && typeof value === "object" ? Object.fromEntries(Object.entries(value).map(([name, each]) => [name, whole(each)])) : value;
    };
    const told = { ...job };
    for (const name of ["price", "budget", "stake", "stop"]) if (name in told) told[name] = whole(told[name]);
    return told;
  },
};
