// Amounts as people write them: "0.5 GRAD", "1e18 units", or a whole number of the token's smallest unit.
"use strict";
const Amounts = {
  // Returns a decimal string in the smallest unit; throws an Error with the form of amounts.
  smallest(text, symbol, decimals) {
    const found = /^(\d+)(?:\.(\d+))?(?:e(\d{1,2}))?(?: (\S+))?$/.exec(text.trim()), [, whole, fraction = "", power = "0", unit = "units"] = found || [];
    const places = unit === symbol ? decimals + Number(power) : Number(power);
    if (!found || (unit !== symbol && unit !== "units") || fraction.length > places) {
      throw new Error(`"${text}" is no amount: write it like 0.5 ${symbol}, 1e18 units, or as a whole number of the smallest unit.`);
    }
    return BigInt(whole + fraction.padEnd(places, "0")).toString();
  },
};
